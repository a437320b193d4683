"""Measurements: speed (`make bench`), effects of deviations (`make deviations`) and walks (`make walks`)."""
