"""Groups of quotas that could share, hour by hour, and the capacity of their cluster."""

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.arrays import Doubles
from capacity.quota.tree import QuotaTree
from fallow.models import Subject


class FreeGpus(msgspec.Struct, frozen=True):
    """Free GPUs of a cluster that waiting pods could use, by hour, and the hourly price of one."""

    free: Doubles
    usd_h: float | None
    measured: bool
    """True: the ledger has hours of the cluster, so the free GPUs were measured."""
    gpus: float
    cpu: float
    memory: float
    models: int
    matched: bool = False
    """True: `free` counts only GPUs of the models that pods wait for."""


class QuotaGroup(msgspec.Struct, frozen=True):
    """Quotas of one kind, parent and flavor: rows are hours with polls."""

    cluster: str
    kind: str
    parent: str
    resource: str
    lends: bool
    members: tuple[tuple[str, str], ...]
    """Namespace and name of each column."""
    hours: npt.NDArray[np.int64]
    """Hours since 1970."""
    inside: npt.NDArray[np.bool_]
    """Rows of the window; the others are history."""
    nominal: Doubles
    limit: Doubles
    used: Doubles
    waiting: Doubles
    allocated: Doubles
    """GPUs allocated to the inventory's pods."""
    queued: Doubles
    """GPUs that existing pods request and do not have."""
    idle: Doubles
    idle_usd: Doubles
    """Dollars of these hours; NaN where a part has no price."""
    cpu: Doubles
    memory: Doubles
    money: FreeGpus
    notes: tuple[str, ...] = ()
    tree: QuotaTree | None = None
    """The ClusterQueue's cohorts: what each member could have in addition."""

    @property
    def name(self) -> str:
        """Return the name for people."""
        words = [
            self.kind,
            self.parent or "(no cohort)" if self.kind == "ClusterQueue" else self.parent,
        ]
        return "/".join([*filter(None, words), self.resource])

    @property
    def demand(self) -> Doubles:
        """Return the demand: use and waiting demand."""
        return self.used + self.waiting

    def subject(self, column: int) -> Subject:
        """Return the subject of a finding about one member."""
        namespace, name = self.members[column]
        return Subject(self.cluster, namespace, "Quota" if namespace else "Queue", name)

    def label(self, column: int) -> str:
        """Return a member's name; for a namespace's own quota the name of the namespace."""
        namespace, name = self.members[column]
        return f"{namespace}/{name}" if namespace else name


class QuotaGroups(msgspec.Struct, frozen=True):
    """All groups, and the quotas that have no nominal quota of GPUs."""

    groups: tuple[QuotaGroup, ...]
    unjudged: tuple[tuple[Subject, str], ...]
