"""Compare trained systems.

Rows that train and evaluate each of them, tests between them, tables, figures and a page.
"""
