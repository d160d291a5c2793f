"""Run heavy stages as slices, each a pure function of one snapshot, and commit a stage at once.

    pin a snapshot ─► slices: read it, write Parquet files ─► one transaction: delete, register

A worker changes nothing that a reader sees: its files are in the lake's folders, and the catalog
does not name them before the commit. Files of a stage that failed stay unnamed; maintenance removes
them when they are old and no stage runs.
"""
