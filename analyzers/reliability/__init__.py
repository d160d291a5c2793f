"""GPU-hours lost to sick devices, failing nodes and repeated work."""
