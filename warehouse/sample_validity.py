"""For how long a sample is valid, and over which gap energy is counted.

A device sample at `at` with interval i is valid in [at, at + 1.25 i). Seconds of it that lie in
later buckets are counted in those buckets.
"""

VALIDITY = 1.25
"""A sample is valid for so many of its intervals: a scrape may be a quarter late without a hole."""

MAX_GAP = 3.0
"""Between samples at most so many intervals apart the energy counter's increase is counted."""

UNKNOWN_INTERVAL_S = 60.0
"""Interval of a source that does not report its own: the usual scrape interval."""

LONGEST_INTERVAL_S = 3600.0
"""Longer intervals count as this one: it bounds how far before a stretch samples are read."""
