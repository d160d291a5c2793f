"""Nodes and pools: take out what is sick, let pools shrink, let eligible work run on spot."""
