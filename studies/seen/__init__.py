"""What an actor is seen by: box, frame, person crop and pre-training labels, on J-HMDB with a frozen I3D."""
