"""Render tables and texts for people: nothing here reads or decides."""
