"""Run analyzers, and say what was found and why."""
