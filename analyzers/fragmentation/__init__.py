"""Free GPUs that nobody can use: how many, why, whose doing, and which moves free slots."""
