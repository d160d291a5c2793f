"""Collect rows from every source. Collectors judge nothing and use no SQL and no warehouse."""
