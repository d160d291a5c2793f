"""Idle workloads: one judge for live verdicts, back-tests, simulation and a second judgement."""

from analyzers.idle.analyzer import IdleAnalyzer, IdlePast

__all__ = ["IdleAnalyzer", "IdlePast"]
