"""Unexpected spend and waste, by team and namespace, and their causes."""
