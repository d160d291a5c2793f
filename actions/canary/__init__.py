"""Prove that acting works: stop and restore a Deployment of Fallow's own on a schedule.

    Deployment made once ─► Ready ─► stopped, as any action is ─► verified ─► undone ─► Ready again

The journal has every step, so a run goes on where a process before it ended.
"""

from actions.canary.run import Canary, CanaryResult

__all__ = ("Canary", "CanaryResult")
