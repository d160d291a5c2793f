"""Simulate the Kubernetes API server: a store with its semantics, and an HTTP server for it.

A kind without a group (`Pod`, `Deployment`) is the built-in one. A custom kind may be named without
its group if no other group has the name (`Notebook`), else with it (`Queue.scheduling.run.ai`).
`StoreChange.kind` has no group for built-in kinds, and the group for custom kinds
(`Notebook.kubeflow.org`).
"""
