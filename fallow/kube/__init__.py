"""Access API servers for collectors and actions: transport, discovery, lists."""
