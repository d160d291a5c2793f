"""Free GPUs that no job can use: how many, why, blocked by which pods, and which moves help."""
