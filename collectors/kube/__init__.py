"""Kubernetes inventory: nodes, pods, owners, quotas, events and device claims."""
