"""The long-running process: jobs on a schedule, roles, HTTP API, metrics, tracing, delivery."""
