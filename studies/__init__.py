"""Studies around MULE: converters of data sets, evaluations, and the page of results. Not installed."""
