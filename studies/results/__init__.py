"""The numbers of every study as CSV files, and the page of results made from them."""
