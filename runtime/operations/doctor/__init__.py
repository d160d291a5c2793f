"""`fallow doctor`: sources, stores, prices, channels and pages, and what to do about each."""
