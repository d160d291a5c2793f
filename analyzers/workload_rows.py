"""The columns that rows about workloads have in common."""

from fallow.rows import Row

OWNER = ("cluster", "namespace", "workload_kind", "workload")
"""The columns that identify a workload."""
Owner = tuple[str, str, str, str]
"""Their values."""


class WorkloadRow(Row, frozen=True):
    """A row about a workload: its identity."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str

    @property
    def owner(self) -> Owner:
        """Return the workload's identity."""
        return self.cluster, self.namespace, self.workload_kind, self.workload


class WorkloadPlaceRow(WorkloadRow, frozen=True):
    """A row about a workload: also its team, its nodes and the GPU models that it used."""

    team: str | None
    nodes: list[str | None]
    models: list[str | None]
