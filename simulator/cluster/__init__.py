"""The cluster that lives on the API stand-in: nodes, controllers, kubelet, scheduler, quotas."""
