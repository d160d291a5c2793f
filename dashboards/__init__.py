"""Show the content of the read views; the only writes are people's requests to the service."""
