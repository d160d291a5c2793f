"""Run the slices of a heavy stage: on this machine's cores, or on a Ray cluster."""
