"""Stop a workload through its own controller's switch, and start it again exactly as it was."""
