"""Measurements: speed as ratios within one run (`make bench`), and what each deviation costs (`make deviations`)."""
