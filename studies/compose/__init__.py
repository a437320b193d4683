"""Clips of one actor placed side by side: scenes of several actors in real pixels."""
