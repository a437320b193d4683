"""Every rival: its network, and its novelty score."""
