"""Find out whether the nodes of incidents are still there: by their name and by their GPUs.

A cloud gives a recycled node its name again. It is another node only if telemetry shows all of its
GPUs, none of them was there before the last sign of the incident, and those of then are known. A
GPU that the evidence names is still there wherever it is shown.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from functools import cached_property

import msgspec

from analyzers.suspended.rows import NodeGpu, read_node_gpus
from capacity.placement.fleet_state import FleetState, NodeRecord, to_micros
from capacity.placement.node_capacities import STALE
from fallow.protocols import Views


class NamedNodes(msgspec.Struct, frozen=True):
    """Nodes, and GPUs, that incidents of a job name, and when their last sign was (naive UTC)."""

    nodes: Collection[str]
    devices: Collection[str]
    last_sign: datetime


class SickNodes:
    """The nodes, and GPUs, that were sick until a last sign, at one time."""

    def __init__(
        self,
        views: Views,
        state: FleetState,
        cluster: str,
        named: NamedNodes,
        now: datetime,
    ) -> None:
        self._views, self._state, self._cluster, self._now = views, state, cluster, now
        self._nodes, self._devices = sorted(named.nodes), sorted(named.devices)
        self._last_sign = named.last_sign

    def list_present(self) -> list[str]:
        """Return the nodes that are still there, and those that have a GPU of the incidents now."""
        moved = {
            gpu.node or gpu.device
            for gpu in self._current_gpus
            if gpu.device in self._devices or gpu.gpu in self._devices
        }
        unchanged = {n for n in self._nodes if self._is_listed(n) and not self._is_replaced(n)}
        return sorted(moved | unchanged)

    def are_replaced(self) -> bool:
        """Return whether each node is there by its name and has other GPUs now."""
        return all(self._is_listed(node) and self._is_replaced(node) for node in self._nodes)

    def describe_gone(self) -> list[str]:
        """Return the nodes, and which of them came back under their name."""
        return [
            f"{node} (it has other GPUs now)" if self._is_listed(node) else node
            for node in self._nodes
        ]

    def _is_listed(self, node: str) -> bool:
        record = self._get_record(node)
        oldest = to_micros(self._now - STALE)
        return record is not None and (record.last_us is None or record.last_us >= oldest)

    def _is_replaced(self, node: str) -> bool:
        """Return whether a node with this name has other GPUs than at the time of the incident."""
        record = self._get_record(node)
        now = [gpu for gpu in self._current_gpus if gpu.node == node]
        count = len({gpu.gpu for gpu in now})
        is_complete = record is not None and 0 < (record.gpu_count or 0) <= count
        is_new = all(gpu.first_seen > self._last_sign for gpu in now)
        had_others = any(g.node == node and g.first_seen <= self._last_sign for g in self._gpus)
        return is_complete and is_new and had_others

    def _get_record(self, node: str) -> NodeRecord | None:
        return self._state.nodes.get((self._cluster, node))

    @cached_property
    def _gpus(self) -> list[NodeGpu]:
        return read_node_gpus(self._views, self._cluster, self._nodes, self._devices, self._now)

    @cached_property
    def _current_gpus(self) -> list[NodeGpu]:
        """Return the GPUs that telemetry shows now."""
        oldest = self._now.astimezone(UTC).replace(tzinfo=None) - STALE
        return [gpu for gpu in self._gpus if gpu.last_seen >= oldest]
