"""Deliver reports: each report to each of its destinations at most once."""
