"""Kubernetes quantities, as the ground reads them."""

from fallow.quantities import milli, quantity, whole

__all__ = ["milli", "quantity", "whole"]
