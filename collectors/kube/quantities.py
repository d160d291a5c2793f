"""Kubernetes quantities, as `fallow.kube` reads them."""

from fallow.kube.quantities import milli, quantity, whole

__all__ = ["milli", "quantity", "whole"]
