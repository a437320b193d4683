"""The table of actors: read, checked, written and counted."""
