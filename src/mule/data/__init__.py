"""Data on its way to the network: table, converters, splits and batches."""
