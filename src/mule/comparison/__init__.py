"""Compare trained systems: rows that train and evaluate each of them, tests between them, tables, figures and a page."""
