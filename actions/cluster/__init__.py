"""Read from and write to one cluster, and interpret the API server's replies."""
