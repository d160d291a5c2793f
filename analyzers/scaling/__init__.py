"""Scaling of distributed jobs: the throughput per GPU that is lost with the number of GPUs."""
