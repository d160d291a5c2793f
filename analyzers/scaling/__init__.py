"""Scaling of distributed jobs: how much of the throughput of a GPU is lost among many."""
