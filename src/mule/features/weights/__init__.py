"""Published weights: cards, key maps, loading and download."""
