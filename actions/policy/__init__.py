"""Policies: what may be done about which findings, how far, how often, and when not."""
