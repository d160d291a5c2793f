"""Workloads that use little of what they hold: why, and what smaller thing would do."""
