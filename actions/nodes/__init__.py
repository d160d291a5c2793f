"""Nodes and pools: recycle sick nodes, let pools shrink, let eligible work run on spot."""
