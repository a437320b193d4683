"""Evidence memory: which remembered actors are nearest, and what they say for, against and about being known."""
