"""Replay a site's own past through a scheduler, as it was and with other settings."""
