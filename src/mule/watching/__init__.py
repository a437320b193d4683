"""Watching: what was seen of every actor at every key time, kept, drawn, exported and told."""
