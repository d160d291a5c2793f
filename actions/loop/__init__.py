"""The acting loop: reconcile, then plan, then one action after the other.

The journal comes first.
"""
