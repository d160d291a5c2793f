"""Jobs whose ranks communicate over slower links than their size needs."""
