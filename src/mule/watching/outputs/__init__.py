"""From moments to files, pages and pictures."""
