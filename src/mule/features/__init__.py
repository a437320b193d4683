"""Room 3: clips and detections become actor, object and context features."""
