"""Workloads that use little of their allocation: the causes, and a smaller size that suffices."""
