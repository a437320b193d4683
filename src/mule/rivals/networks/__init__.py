"""The rivals' networks, one file each."""
