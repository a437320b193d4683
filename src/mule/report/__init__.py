"""Tables, figures and pictures of what was measured, from plain numbers and arrays; nothing here needs torch."""
