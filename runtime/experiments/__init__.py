"""Run simulated sites, measure accuracy against planted truth, and show the demo."""
