"""Jobs whose ranks talk over slower links than their size needs."""
