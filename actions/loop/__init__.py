"""The one loop that acts: reconcile, then plan, then one action after the other, journal first."""
