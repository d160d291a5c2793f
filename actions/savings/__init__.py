"""What acting really saved: predicted before, measured after, each dollar of one kind."""
