"""Simulate a fleet: exporters and a Kubernetes API that respond like the real ones.

The simulator is separate from the other packages: Fallow uses it over HTTP. Only runtime and tests
import it.
"""
