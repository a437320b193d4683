"""Clips to detections: where the actors and the objects are, and which actor is which over time."""
