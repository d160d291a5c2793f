"""GPU-hours lost to sick devices, failing nodes and work that is done twice."""
