"""Spend and waste that nobody expected, by team and namespace, and what it is made of."""
