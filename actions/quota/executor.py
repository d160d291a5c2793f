"""Turn a rebalance of quota into writes: one action, shrinking first, undone in reverse."""

from typing import ClassVar

from fallow.acting import Decision, Intent
from fallow.seams import Cluster, Right

READ = ("get", "list")


class QuotaExecutor:
    """Move guarantees between the quotas of a group."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Quota"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"quota"})
    verbs: ClassVar[frozenset[str]] = frozenset({"rebalance-quota"})
    rights: ClassVar[tuple[Right, ...]] = ()

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the writes of a rebalance, all of them one action."""
        raise NotImplementedError
