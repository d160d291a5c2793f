"""Scaling: GPUs kept ready by placeholder pods that anybody's work drives out at once.

`manifests` renders what people may review and apply themselves; `executor` makes the placeholders
and their schedule through the API, as any other action.
"""
