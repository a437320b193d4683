"""What a person says about novel people: a log of acts that only grows, and the model that follows from it."""
