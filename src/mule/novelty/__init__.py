"""Novelty: how far an actor is from every action the model was taught."""
