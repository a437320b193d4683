"""What every room may use: records, errors, files, text rows and the typed experiment file."""
