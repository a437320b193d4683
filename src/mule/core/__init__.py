"""What every room may use: records, errors, files, text rows and the typed experiment file."""

__version__ = "0.2.0.dev0"
"""Of the package `mule-actions`; everything that names a version reads it here."""
