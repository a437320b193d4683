"""The rivals of the paper, one file each: scores that work on stored outputs, so all share one forward pass."""
