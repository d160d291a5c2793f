"""Each workload that waits for GPUs: what waiting costs, why, blocked by whom, and its ways in."""
