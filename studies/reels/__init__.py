"""Untrimmed videos with the truth beside them: reels of acts and idle stretches, and continuous scenes."""
