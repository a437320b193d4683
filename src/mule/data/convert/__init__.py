"""Converters from other formats to the table of actors."""
