"""Training: a step, the loop around it, and what is kept so that no crash loses more than a few minutes."""
