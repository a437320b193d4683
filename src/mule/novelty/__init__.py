"""Opinions → novelty: how far an actor is from everything that was taught."""
