"""The way to an API server that collectors and actions share: transport, discovery, lists."""
