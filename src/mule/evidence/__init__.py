"""Room 5: relations become evidence for and against each known action, and evidence becomes opinions."""
