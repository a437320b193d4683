"""Evidence memory: the remembered actors nearest to a new one are evidence for and against actions, and for being known."""
