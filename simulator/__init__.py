"""A fleet in a box: exporters and a Kubernetes API that answer like the real ones.

Stands apart from the other rooms: Fallow meets it over HTTP. Only runtime and tests import it.
"""
