"""From video to moments."""
