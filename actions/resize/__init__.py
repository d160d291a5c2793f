"""Right sizes: requests of CPU and memory, replicas, MIG layouts."""
