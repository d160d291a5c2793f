"""The rows that several analyzers read: one record per query."""

from fallow.rows import Row

Owner = tuple[str, str, str, str]
"""Cluster, namespace, kind and name of a workload."""


class OwnedRow(Row, frozen=True):
    """The superclass of rows of one workload."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str

    @property
    def owner(self) -> Owner:
        """The key of its workload."""
        return self.cluster, self.namespace, self.workload_kind, self.workload
