"""Relations → evidence → opinions: what speaks for and against each known action, and what follows from it."""
