"""Unexpected spend and waste, by team and namespace, and what it is made of."""
