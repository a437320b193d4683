"""Every recogniser by name: how it is built, how it is trained, what it costs."""
