"""Run `fallow doctor`: check sources, stores, prices, channels and pages."""
