"""The acting loop: reconcile, then plan, then one action after the other.

Every step is journalled before it is done.
"""
