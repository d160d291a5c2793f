"""Simulate the cluster on the API stub: nodes, controllers, kubelet, scheduler, quotas."""
