"""Quotas in a tree, as Kueue computes them: what a queue may still take, and who yields to it."""
