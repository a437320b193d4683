"""A trained run over any set of actors, with its outputs cached by key."""
