"""Quotas that stand together, hour by hour, and what their cluster has."""

import msgspec
import numpy as np
import numpy.typing as npt

from analyzers.quota.cohorts import CohortTree
from analyzers.quota.fair import Doubles
from fallow.models import Subject


class FreeGpus(msgspec.Struct, frozen=True):
    """GPUs of a cluster that those who wait could have, by hour, and what an hour of one costs."""

    free: Doubles
    usd_h: float | None
    measured: bool
    """The ledger has hours of the cluster: what is free was measured."""
    gpus: float
    cpu: float
    memory: float
    models: int
    matched: bool = False
    """`free` counts only GPUs of the models that are waited for."""


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
    """What the inventory's pods hold."""
    queued: Doubles
    """What pods that were made ask for and do not have."""
    idle: Doubles
    idle_usd: Doubles
    """Dollars of that; NaN where a part has no price."""
    cpu: Doubles
    memory: Doubles
    money: FreeGpus
    notes: tuple[str, ...] = ()
    tree: CohortTree | None = None
    """Of a ClusterQueue's cohorts: what each member could have on top."""

    @property
    def name(self) -> str:
        """Return what people call it."""
        words = [
            self.kind,
            self.parent or "(no cohort)" if self.kind == "ClusterQueue" else self.parent,
        ]
        return "/".join([*filter(None, words), self.resource])

    @property
    def demand(self) -> Doubles:
        """Return what is had and waited for."""
        return self.used + self.waiting

    def subject(self, column: int) -> Subject:
        """Return the subject of a finding about one member."""
        namespace, name = self.members[column]
        return Subject(self.cluster, namespace, "Quota" if namespace else "Queue", name)

    def label(self, column: int) -> str:
        """Return a member's name; a namespace's own quota is the namespace's."""
        namespace, name = self.members[column]
        return f"{namespace}/{name}" if namespace else name


class QuotaGroups(msgspec.Struct, frozen=True):
    """All groups, and the quotas that guarantee no number of GPUs."""

    groups: tuple[QuotaGroup, ...]
    unjudged: tuple[tuple[Subject, str], ...]
