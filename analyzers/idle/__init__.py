"""Idle workloads: one judge for live verdicts, back-tests, simulation and the recheck."""
