"""Studies around MULE: converters of single data sets, extra evaluations, and the results page. Not installed."""
