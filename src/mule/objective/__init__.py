"""What is minimised in training, and under which constraint: the Beta loss, HSIC, the primal-dual scheme."""
