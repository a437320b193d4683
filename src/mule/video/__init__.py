"""Room 1: video → clips. Exact frames at given times, the windows to cut, pixels and boxes moving together."""
