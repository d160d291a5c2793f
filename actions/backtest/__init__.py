"""Replay a policy over the site's own history, with data only up to each moment."""
