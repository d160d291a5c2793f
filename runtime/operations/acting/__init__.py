"""Plan, act, and carry out what people ask for."""
