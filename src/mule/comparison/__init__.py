"""Trained systems side by side: what each says of the same actors, how well novel ones stand out, and the paper's tables."""
