"""Stage: rendered scenes of several actors who each do several things, with exact ground truth."""
