"""Data sets: one table, what converts to it, open-set splits, Stage, and batches."""
