"""Backbones compiled for a processor, and running what was compiled."""
