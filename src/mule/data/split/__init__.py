"""Open-set splits: which actions are known, which videos train."""
