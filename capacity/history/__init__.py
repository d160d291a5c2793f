"""Read who asked for GPUs when, and which nodes and quotas there were: the past of a queue."""
