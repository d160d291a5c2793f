"""A stand-in for the Kubernetes API server: a store with its semantics, and an HTTP door to it.

A bare name of a kind (`Pod`, `Deployment`) means the built-in one; a custom kind may be named alone
where no other group has the name (`Notebook`), else with its group (`Queue.scheduling.run.ai`).
`Change.kind` is bare for built-in kinds, with the group for custom ones (`Notebook.kubeflow.org`).
"""
