"""The rivals' novelty scores on stored outputs."""
