"""Fallow's ground: nouns, seams, errors, settings and plugins.

The only package third parties import. Small and light: no engine, no client, no frame library
is imported here at module level except where a function needs it.
"""

__version__ = "0.1.0"
