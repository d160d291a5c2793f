"""Files, processes, clocks, threads and network of the machine."""
