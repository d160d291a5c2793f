"""Idle workloads: one judge for live verdicts, back-tests, simulation and the recheck."""

from analyzers.idle.analyzer import IdleAnalyzer, IdlePast

__all__ = ["IdleAnalyzer", "IdlePast"]
