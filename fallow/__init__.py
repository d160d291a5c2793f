"""Define the core: models, protocols, settings, errors and plugins.

Third parties import only this package. It is small and light: it imports no engine, no client and
no frame library at module level, only inside a function that needs one.
"""

__version__ = "0.1.0"
