"""Import Alibaba's openb cluster trace: nodes, pod specs and, where given, a placement.

The trace counts seconds from an unnamed start; they are mapped to `EPOCH`. It is a sample of task
shapes, suitable for inventory, requests, pool sizes and queue waits. It has no telemetry, so
nothing here may be read as utilisation.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import polars as pl

from collectors.inventory import derive_pod_uid
from fallow.errors import UsageError
from fallow.system.input_files import open_input
from fallow.tables import Batch, get_schema

EPOCH = datetime(2023, 1, 1, tzinfo=UTC)
"""The time of second 0 of the trace: the trace's own year, otherwise arbitrary."""

MAX_BYTES = 1 << 30
"""Bytes of a list: the trace's own has 1 MB."""
NAMESPACE = "openb"
RESOURCE = "nvidia.com/gpu"
WHOLE = 1000
"""`gpu_milli` of a whole GPU."""

MOST = 10**9
"""Largest number of the trace: seconds (31 years), thousandths of a core, MiB (a PiB)."""

_NODES = {
    "sn": pl.String,
    "cpu_milli": pl.Int64,
    "memory_mib": pl.Int64,
    "gpu": pl.Int64,
    "model": pl.String,
}
_SHAPES = {
    "name": pl.String,
    "cpu_milli": pl.Int64,
    "memory_mib": pl.Int64,
    "num_gpu": pl.Int64,
    "gpu_milli": pl.Int64,
}
_REST = {
    "gpu_spec": pl.String,
    "qos": pl.String,
    "pod_phase": pl.String,
    "creation_time": pl.Int64,
    "deletion_time": pl.Int64,
    "scheduled_time": pl.Int64,
}
_PODS = {**_SHAPES, **_REST}
"""Pod lists of the trace's variants may end after `_SHAPES`, without models, phases or times."""
_PLACEMENT = {"pod": pl.String, "node": pl.String, "gpu_index": pl.String}


class Summary(msgspec.Struct, frozen=True):
    """What was imported, by kind; GPUs are physical, `pending_gpus` counts fractions."""

    nodes: int
    gpu_nodes: int
    gpus: int
    pods: int
    cpu_only: int
    sharing: int
    by_gpus: dict[int, int]
    pending: int
    pending_gpus: float
    placed: int


def import_openb(
    nodes: Path, pods: Path, placement: Path | None = None, cluster: str = "openb"
) -> Iterator[Batch]:
    """Yield `node` and `pod` rows; a placement names each placed pod's node and devices.

    `gpu_request` is `num_gpu * gpu_milli / 1000` GPUs; device ids are `<node>/gpu<index>`. A pod
    list of five columns (`multigpu`) has no phases and no times: its pods are dated at `EPOCH`.

    Raises:
        UsageError: a file is not the trace's, or the placement is not of these nodes and pods.
    """
    machines = _read(nodes, _NODES, key="sn")
    specs = _read(pods, _PODS, key="name", optional=_REST)
    placements = None
    if placement is not None:
        placements = _read(placement, _PLACEMENT, key="pod")
        _check_placement(placement, placements, machines, specs)
    last = specs.select(pl.max_horizontal(pl.col("^.*_time$").max())).item() or 0
    yield _build_node_batch(machines, cluster, last)
    yield _build_pod_batch(specs, placements, cluster)


def summarize_import(batches: Iterable[Batch]) -> Summary:
    """Count nodes, GPUs and pods by kind over the batches of one import."""
    of: dict[str, list[pl.DataFrame]] = {"node": [], "pod": []}
    for batch in batches:
        frame = pl.from_arrow(batch.rows)
        if batch.table in of and isinstance(frame, pl.DataFrame):
            of[batch.table].append(frame)
    node, pod = (
        pl.concat(of[table] or [pl.DataFrame(get_schema(table).empty_table())])
        for table in ("node", "pod")
    )
    requested = pod["gpu_request"]
    whole_gpus = pod.filter(pl.col("gpu_request") >= 1)["gpu_request"].cast(pl.Int64)
    pending = pod.filter(pl.col("phase") == "Pending")
    return Summary(
        nodes=node.height,
        gpu_nodes=node.filter(pl.col("gpu_count") > 0).height,
        gpus=int(node["gpu_count"].sum()),
        pods=pod.height,
        cpu_only=int((requested == 0).sum()),
        sharing=int(((requested > 0) & (requested < 1)).sum()),
        by_gpus=dict(sorted(whole_gpus.value_counts().iter_rows())),
        pending=pending.height,
        pending_gpus=round(float(pending["gpu_request"].sum()), 6),
        placed=pod.height - pod["node"].null_count(),
    )


def _read(
    path: Path,
    columns_wanted: Mapping[str, type[pl.DataType]],
    *,
    key: str,
    optional: Mapping[str, type[pl.DataType]] | None = None,
) -> pl.DataFrame:
    """Read a table; `optional` columns may all be missing, and are then empty."""
    try:
        with open_input(path, most=MAX_BYTES) as file:
            frame = pl.read_csv(file, schema_overrides=columns_wanted)
    except pl.exceptions.NoDataError as error:
        raise UsageError(f"{path} is empty") from error
    except pl.exceptions.PolarsError as error:
        raise UsageError(f"{path} is not an openb table: {str(error).splitlines()[0]}") from error
    missing = [name for name in columns_wanted if name not in frame.columns]
    if optional and set(missing) == set(optional):
        frame = frame.with_columns(pl.lit(None, kind).alias(n) for n, kind in optional.items())
        missing = []
    if missing:
        raise UsageError(
            f"{path} has no column {', '.join(missing)}",
            hint=f"columns of this openb table: {', '.join(columns_wanted)}",
        )
    sizes = [name for name, kind in columns_wanted.items() if kind == pl.Int64]
    for name in sizes:
        if not frame[name].drop_nulls().is_between(0, MOST).all():
            raise UsageError(f"{path}: {name!r} is not between 0 and {MOST:,} everywhere")
    if frame[key].null_count() or frame[key].is_duplicated().any():
        raise UsageError(f"{path} has a missing or repeated {key!r}")
    return frame


def _check_placement(
    path: Path, placements: pl.DataFrame, machines: pl.DataFrame, specs: pl.DataFrame
) -> None:
    strange = placements.join(specs, left_on="pod", right_on="name", how="anti")
    if strange.height:
        raise UsageError(f"{path} places pod {strange['pod'][0]!r}, which the pod list lacks")
    devices = (
        placements.drop_nulls("node")
        .with_columns(pl.col("gpu_index").str.split("-"))
        .explode("gpu_index")
        .with_columns(pl.col("gpu_index").cast(pl.Int64, strict=False))
        .join(machines, left_on="node", right_on="sn", how="left", coalesce=True)
    )
    wrong = devices.filter(pl.col("gpu").is_null() | (pl.col("gpu_index") >= pl.col("gpu")))
    if wrong.height:
        row = wrong.row(0, named=True)
        problem = "no such node" if row["gpu"] is None else f"{row['gpu']} GPUs there"
        raise UsageError(
            f"{path} places {row['pod']!r} on GPU {row['gpu_index']} of {row['node']!r}: {problem}",
            hint="a placement belongs to the node list it was made from "
            "(the lists of all nodes and of GPU nodes number nodes differently)",
        )


def _build_node_batch(machines: pl.DataFrame, cluster: str, last: int) -> Batch:
    has_gpu = pl.col("gpu") > 0
    rows = machines.select(
        cluster=pl.lit(cluster),
        node=pl.col("sn"),
        first_seen=_convert_timestamp(pl.lit(0)),
        last_seen=_convert_timestamp(pl.lit(last)),
        cpu_milli="cpu_milli",
        memory_bytes=pl.col("memory_mib") * 1024**2,
        gpu_resource=pl.when(has_gpu).then(pl.lit(RESOURCE)),
        gpu_count=pl.col("gpu"),
        gpu_model=pl.when(has_gpu).then("model"),
    )
    return Batch.of("node", {c: rows[c].to_arrow() for c in rows.columns})


def _build_pod_batch(specs: pl.DataFrame, placements: pl.DataFrame | None, cluster: str) -> Batch:
    if placements is None:
        where = specs.select("name", node=pl.lit(None, pl.String), devices=pl.lit(None, pl.String))
    else:
        where = _build_devices(specs, placements)
    frame = specs.join(where, on="name", how="left", maintain_order="left")
    has_gpu = pl.col("num_gpu") > 0
    rows = frame.select(
        cluster=pl.lit(cluster),
        uid=pl.Series([derive_pod_uid(cluster, NAMESPACE, name) for name in frame["name"]]),
        namespace=pl.lit(NAMESPACE),
        pod="name",
        node="node",
        phase="pod_phase",
        qos="qos",
        workload_kind=pl.lit("Pod"),
        workload="name",
        gpu_resource=pl.when(has_gpu).then(pl.lit(RESOURCE)),
        gpu_request=pl.col("num_gpu") * pl.col("gpu_milli") / WHOLE,
        cpu_request_milli="cpu_milli",
        memory_request_bytes=pl.col("memory_mib") * 1024**2,
        created_at=_convert_timestamp(pl.col("creation_time")),
        scheduled_at=_convert_timestamp(pl.col("scheduled_time")),
        deleted_at=_convert_timestamp(pl.col("deletion_time")),
        first_seen=_convert_timestamp(pl.col("creation_time").fill_null(0)),
        last_seen=_convert_timestamp(pl.col("deletion_time").fill_null(0)),
        labels=_build_labels(),
        devices="devices",
    )
    return Batch.of("pod", {c: rows[c].to_arrow() for c in rows.columns})


def _build_labels() -> pl.Expr:
    """Return a JSON document: the models that a pod requests, and that it exists in any phase.

    A placement shows pods at one time that the trace never had at the same time.
    """
    choosy, placements = pl.col("gpu_spec").fill_null("") != "", pl.col("node").is_not_null()
    spec, placement = pl.col("gpu_spec"), pl.lit("imported").alias("placement")
    return (
        pl.when(choosy & placements)
        .then(pl.struct(spec, placement).struct.json_encode())
        .when(choosy)
        .then(pl.struct(spec).struct.json_encode())
        .when(placements)
        .then(pl.struct(placement).struct.json_encode())
    )


def _build_devices(specs: pl.DataFrame, placements: pl.DataFrame) -> pl.DataFrame:
    """Return name, node and the `pod.devices` document of every placed pod."""
    each = (
        placements.drop_nulls("node")
        .join(specs.select("name", "gpu_milli"), left_on="pod", right_on="name")
        .with_columns(pl.col("gpu_index").str.split("-"))
        .explode("gpu_index")
        .with_columns(
            one=pl.struct(
                device=pl.format("{}/gpu{}", "node", "gpu_index"), share=pl.col("gpu_milli") / WHOLE
            ).struct.json_encode()
        )
    )
    documents = (
        each.drop_nulls("gpu_index")
        .group_by("pod", maintain_order=True)
        .agg(devices=pl.format("[{}]", pl.col("one").str.join(",")))
    )
    return placements.join(documents, on="pod", how="left").select("node", "devices", name="pod")


def _convert_timestamp(seconds: pl.Expr) -> pl.Expr:
    start = pl.lit(EPOCH.replace(tzinfo=None)).cast(pl.Datetime("us"))
    return start + pl.duration(seconds=seconds)
