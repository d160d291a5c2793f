"""Scaling: placeholder pods keep GPUs ready, and any other pod preempts them at once.

`manifests` renders manifests that people may review and apply themselves; `executor` creates the
placeholders and their schedule through the API, as any other action.
"""
