"""The rows of the pools analyzer that are read one by one: of queries, frames and tables."""

from datetime import datetime
from decimal import Decimal
from functools import cache

from analyzers.queries import load_records, load_sql
from fallow.protocols import Views
from fallow.rows import Row, decode_rows


class TypePrice(Row, frozen=True):
    """The highest price of an instance type in a region at one term (`type_prices.sql`)."""

    provider: str
    region: str
    zone: str
    instance_type: str
    term: str
    node_usd_h: Decimal
    as_of: datetime | None
    reference: str | None


class PoolNode(Row, frozen=True):
    """A node of a pool (a frame of `gpu_nodes.sql`)."""

    provider: str | None
    region: str | None
    capacity_type: str | None
    arch: str
    gpu_resource: str | None
    gpu_count: int
    gpu_model: str | None
    sharing: str | None
    cpu_milli: int | None
    memory_bytes: int | None
    labels: str | None
    taints: str | None


class PodFacts(Row, frozen=True):
    """What pods request, and what is known of the node they ran on (a frame of pods)."""

    gpu_resource: str | None
    gpu_request: float | None
    """None = the pod requests GPUs, and their number is unknown."""
    gpu_mem_request_bytes: int | None
    gpu_core_request_pct: float | None
    cpu_request_milli: int | None
    memory_request_bytes: int | None
    gpu_model: str | None
    arch: str | None
    gpu_spec: str | None
    selector: str | None
    gpu_type: str | None
    least_gpus: int
    per_gpu_cpu: int | None = None
    per_gpu_memory: int | None = None


class TypeCost(Row, frozen=True):
    """The hours of a pool's nodes of one type, and their cost in the ledger (a frame)."""

    type: str
    usd: Decimal | None
    unpriced_hours: float
    node_hours: float


class FreeHours(Row, frozen=True):
    """The GPU-hours of a node that were not allocated, and their cost (a frame)."""

    node: str
    free_hours: float
    free_usd: Decimal | None
    unpriced_hours: float


class EmptyHours(Row, frozen=True):
    """Hours in which a node had no pod, or only pods without GPUs (a frame)."""

    node: str
    gpu_count: int
    empty_hours: float
    squatted_hours: float


class StrandedHours(Row, frozen=True):
    """Free GPU-hours of a node that lacked CPU or memory (a frame)."""

    node: str
    by_cpu: float
    by_memory: float
    by_both: float
    cpu_per_gpu: float | None
    memory_per_gpu: float | None


class InstanceType(Row, frozen=True):
    """An instance type with GPUs (`instance_types.csv`)."""

    provider: str
    instance_type: str
    arch: str
    vendor: str
    gpu_model: str
    gpu_count: int
    gpu_memory_mib: int
    vcpu: float
    memory_mib: int
    allocatable_cpu_milli: int
    allocatable_memory_mib: int
    as_of: str
    source: str
    confirmed: str
    """`yes` or `no`."""


def read_prices(views: Views, until: datetime) -> tuple[TypePrice, ...]:
    """Return the prices of instance types that are in force at a time (without zone)."""
    prices = views.query(load_sql("pools/type_prices"), {"until": until})
    return tuple(decode_rows(prices, TypePrice))


@cache
def read_types() -> tuple[InstanceType, ...]:
    """Return the known instance types."""
    return tuple(load_records("pools/instance_types", InstanceType))
