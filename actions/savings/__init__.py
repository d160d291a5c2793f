"""The real savings of actions: predicted before, measured after, each dollar of one kind."""
