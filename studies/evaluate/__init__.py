"""Evaluations that only the studies use: far novelty, more looks, agreement of scores, ensembles."""
