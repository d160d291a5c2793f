"""Simulated sites, accuracy against planted truth, the demo."""
