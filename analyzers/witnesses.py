"""Gather the witnesses of each idle stretch: physics, host, intent, and what forbids a verdict."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec
import polars as pl

from analyzers.evidence import Witness, Witnesses
from analyzers.looks import bounds
from analyzers.power_band import Band
from analyzers.queries import rows_of, sql, steps
from analyzers.runs import MICRO
from fallow.seams import Views
from fallow.settings import IdleSettings
from fallow.window import Window

SPAN = "idle_span"
AT_WORK_STEPS = (
    SPAN,
    *(f"at_work/{n}" for n in ("asked", "hosts", "followed", "notebooks", "told")),
)
"""What tells when the pods of stretches were at work beside their devices."""

CPU_SHARE = 0.05
"""Cores per requested core, at or below which a pod is at rest (domain.md 2.2, K3)."""

BYTES_S = 10_000
"""Network or file system bytes a second, below which a pod is at rest (domain.md 2.2, K3)."""

AFTER_US = 1200 * MICRO
"""Two looks at hosts after a stretch tell of its last moments; at most ten minutes apart."""

SKEW_US = 30 * MICRO
MOVING = 0.10
"""Share of looks with traffic above which bytes are said to move."""

AT_WORK = 0.05
"""Share of looks with a busy kernel or a served request above which somebody is at work."""

SERVICES = frozenset({"idle_inference", "idle_workload"})
"""Kinds of findings about what serves or, for all we know, may serve (domain.md 2.2, K1)."""

IDLE_CLOCK = 0.95
"""Share of looks in which the driver must say that clocks are low because the GPU is idle."""


class Pods(msgspec.Struct, frozen=True):
    """What inventory, host and notebooks said about the pods, by stretch."""

    inventory: Mapping[int, list[dict[str, Any]]]
    hosts: Mapping[int, dict[str, Any]]
    notebooks: Mapping[int, dict[str, Any]]


def physics(members: pl.DataFrame, bands: Mapping[str, Band], margin_w: float) -> pl.DataFrame:
    """Add `band_w`, `band` (its source) and `physics` per device and stretch.

    Power above the band speaks against; within it, or one of the other witnesses, for.
    """
    known = pl.DataFrame(
        {
            "gpu_model": list(bands),
            "band_w": [b.watts for b in bands.values()],
            "band": [b.source for b in bands.values()],
        },
        schema={"gpu_model": pl.String, "band_w": pl.Float64, "band": pl.String},
    )
    return by_bands(members, known, margin_w, on=["gpu_model"])


def by_bands(
    members: pl.DataFrame, known: pl.DataFrame, margin_w: float, *, on: list[str]
) -> pl.DataFrame:
    """Do what `physics` does, with the bands that `known` has for the columns `on`."""
    long_ago = pl.col("kernel_age_s") >= (pl.col("end") - pl.col("start")) / MICRO
    said = pl.any_horizontal(
        (pl.col("idle_clock") >= IDLE_CLOCK).fill_null(False),
        (pl.col("procs") == 0).fill_null(False),
        long_ago.fill_null(False),
    )
    within = pl.col("power_w") <= pl.col("band_w") + margin_w
    joined = members.with_columns(
        pl.col("power_w", "idle_clock", "procs", "kernel_age_s", "traffic").fill_nan(None)
    ).join(known, on=on, how="left")
    return joined.with_columns(
        physics=pl.when(within.not_().fill_null(False))
        .then(pl.lit(False))
        .when(within.fill_null(False) | said)
        .then(pl.lit(True))
        .otherwise(pl.lit(None, dtype=pl.Boolean))
    )


def by_device(members: pl.DataFrame) -> pl.DataFrame:
    """Sum the pieces of each device up per stretch (`span`): a minute of one is not a night."""

    def mean(name: str) -> pl.Expr:
        known = pl.col(name).fill_nan(None)
        return (known * pl.col("looks")).sum() / pl.col("looks").filter(known.is_not_null()).sum()

    length = pl.col("piece_end") - pl.col("piece_start")
    return members.group_by("span", "number", maintain_order=True).agg(
        pl.col("gpu_model", "interval_s", "instance").first(),
        pl.col("looks", "idle_looks").sum(),
        *(mean(name).alias(name) for name in ("power_w", "traffic", "idle_clock")),
        pl.col("procs").max(),
        pl.col("kernel_age_s").last(),
        pl.col("energy_flat").any(),
        pl.col("start").min(),
        pl.col("end").max(),
        length_us=length.sum(),
        gpu_us=(pl.col("overlap") * pl.col("gpus")).sum(),
    )


def by_stretch(devices: pl.DataFrame) -> pl.DataFrame:
    """Sum devices up per stretch (`span`): all must speak for idle, one against is enough."""
    return devices.group_by("span", maintain_order=True).agg(
        against=(pl.col("physics") == False).any(),  # noqa: E712  (an expression)
        agreed=pl.col("physics").fill_null(False).all(),
        coverage=(
            (pl.col("looks") * pl.col("interval_s") * MICRO).sum() / pl.col("length_us").sum()
        ).clip(0, 1),
        steady=pl.col("idle_looks").sum() / pl.col("looks").sum(),
        looks=pl.col("looks").sum(),
        stale=pl.col("energy_flat").any(),
        traffic=pl.col("traffic").max(),
        power_w=pl.col("power_w").mean(),
        processes=pl.col("procs").max(),
        kernel_age_s=pl.col("kernel_age_s").min(),
        idle_clock=pl.col("idle_clock").min(),
        bodiless=pl.col("instance").all(),
        band_w=pl.col("band_w").max(),
        band=pl.col("band").first(),
        gpu_us=pl.col("gpu_us").sum(),
        numbers=pl.col("number").unique(maintain_order=True),
    )


def gather(views: Views, window: Window, held: pl.DataFrame) -> Pods:
    """Ask inventory, hosts and notebooks about the pods of the stretches.

    `held` has one row per stretch and pod: span, cluster, namespace, pod, pod_uid, start, end.
    """
    if held.is_empty():
        return Pods({}, {}, {})
    rows = views.query(sql("idle_pods"), {"uids": held["pod_uid"].unique().sort().to_list()})
    by_uid = {row["uid"]: row for row in rows.to_pylist()}
    inventory: dict[int, list[dict[str, Any]]] = {}
    for span, uid in held.select("span", "pod_uid").unique(maintain_order=True).iter_rows():
        inventory.setdefault(span, []).append(by_uid.get(uid, {}))
    spans = _pods_of(window, held)
    hosts = views.query(steps(SPAN, "idle_hosts"), spans).to_pylist()
    notebooks = views.query(steps(SPAN, "idle_notebooks"), spans).to_pylist()
    return Pods(inventory, {r["span"]: r for r in hosts}, {r["span"]: r for r in notebooks})


def at_work(views: Views, window: Window, held: pl.DataFrame, *, apart_us: int) -> pl.DataFrame:
    """Return when the pods of stretches were at work beside their devices: span, from_us, to_us.

    `held` as in `gather`. What is less than `apart_us` apart is one interval: between the two
    nothing could rest for long enough.
    """
    asked = {
        **_pods_of(window, held),
        "cpu_share": CPU_SHARE,
        "bytes_s": BYTES_S,
        "apart_us": apart_us,
        "after_us": AFTER_US,
    }
    return pl.DataFrame(views.query(steps(*AT_WORK_STEPS, "at_work/intervals"), asked)).cast(
        pl.Int64
    )


def _pods_of(window: Window, held: pl.DataFrame) -> dict[str, Any]:
    # One text: a parameter per value of a long list would be most of the query's time.
    named = held.select("span", "cluster", "namespace", "pod", "pod_uid", "start", "end")
    return {**bounds(window), "held": named.write_json()}


def witnesses(
    row: Mapping[str, Any], pods: Pods, settings: IdleSettings, window: Window, *, kind: str
) -> Witnesses:
    """Return what speaks for and against one stretch (a row of `by_stretch` with its times).

    `kind` is that of the finding: what serves, or may serve, rests at night and is judged later.
    """
    span, end = row["span"], row["end"]
    known = pods.inventory.get(span, [])
    host, notebook = pods.hosts.get(span), pods.notebooks.get(span)
    least_us = settings.min_duration.total_seconds() * MICRO
    grace_us = settings.startup_grace.total_seconds() * MICRO
    service_us = settings.service_duration.total_seconds() * MICRO
    until_us = round(window.end.timestamp() * MICRO)
    hard, soft = protections(known)
    meant = intent(host, notebook, len(known), end, least_us)
    return Witnesses(
        physics=True if row["agreed"] else (False if row["against"] else None),
        host=at_rest(host, known),
        intent=meant,
        stale=row["stale"],
        node_not_ready=end >= until_us - least_us and any(p.get("ready") is False for p in known),
        skew=bool(notebook and (notebook["ahead_us"] or 0) > SKEW_US),
        opt_out=hard,
        not_running=bool(known) and all(p.get("phase") == "Pending" for p in known),
        bursty=row["steady"] < settings.coverage,
        # All devices of the node at rest are at rest whoever holds which; some of them are not.
        unplaced=row["spread"] and row["state"] == "partly idle",
        missing=row["coverage"] < settings.coverage,
        shared_estimated=row["estimated"],
        moving=(row["traffic"] or 0) > MOVING,
        starting=any(
            p.get("started_us") is not None and end - p["started_us"] < least_us + grace_us
            for p in known
        ),
        unknown_owner=not known or any(p.get("workload_kind") is None for p in known),
        protected=soft,
        resting=kind in SERVICES and end - row["start"] < service_us,
        unheard=kind == "idle_inference" and meant is None,
        bodiless=row["bodiless"],
    )


def at_rest(host: Mapping[str, Any] | None, pods: list[dict[str, Any]]) -> Witness:
    """Say whether the pods' CPU, network and file system were at rest; None = not all looked at."""
    if host is None or host["cpu_cores"] is None or host["pods_cpu"] < len(pods):
        return None
    requests = [(p.get("cpu_request_milli") or 1000) / 1000 for p in pods]
    cores = max(1.0, sum(requests) / max(len(requests), 1))
    return (
        host["cpu_cores"] <= CPU_SHARE * cores
        and (host["net_bps"] or 0.0) < BYTES_S
        and (host["fs_write_bps"] or 0.0) < BYTES_S
    )


def intent(
    host: Mapping[str, Any] | None,
    notebook: Mapping[str, Any] | None,
    pods: int,
    end_us: int,
    least_us: float,
) -> Witness:
    """Say whether nobody means to use it: kernels and terminals at rest, or no requests.

    A busy kernel is busy whatever its age (a silent cell may run for hours); an open tab is not
    work. Kernels that could not be asked say nothing. What happened in a moment long ago does not
    count: the hysteresis let it pass on the device, too.
    """

    def at_work(share: float, last_us: int | None) -> bool:
        return share > AT_WORK or (last_us is not None and end_us - last_us < least_us)

    if host is not None and host["pods_requests"]:
        if at_work(host["served_share"], host["served_us"]):
            return False
        if host["pods_requests"] >= pods:
            return True
    if notebook is None or not notebook["kernel_looks"]:
        return None
    if at_work(notebook["busy_share"], notebook["busy_us"]):
        return False
    latest = max(notebook["last_kernel_us"] or 0, notebook["last_terminal_us"] or 0)
    rested = end_us - latest >= least_us and notebook["pods"] >= pods
    return True if rested else None


def protections(pods: list[dict[str, Any]]) -> tuple[bool, bool]:
    """Return whether an annotation forbids a verdict, and whether one forbids acting."""
    found = {False: False, True: False}
    for pod in pods:
        noted = msgspec.json.decode(pod["annotations"]) if pod.get("annotations") else {}
        for prefix, value, hard in _protections():
            for name, said in noted.items():
                # A name without a domain is a note of the collector's own, such as fallow.pvcs.
                if (
                    "/" in name
                    and name not in _notes()
                    and name.startswith(prefix)
                    and (not value or str(said).lower() == value)
                ):
                    found[hard] = True
    return found[True], found[False]


@cache
def _protections() -> tuple[tuple[str, str, bool], ...]:
    rows = _annotations()
    return tuple((r["annotation"], r["value"], r["hard"] == "1") for r in rows if r["hard"] in "01")


@cache
def _notes() -> frozenset[str]:
    """Return the annotations by which owners tell something and forbid nothing."""
    return frozenset(row["annotation"] for row in _annotations() if row["hard"] == "note")


@cache
def _annotations() -> tuple[dict[str, str], ...]:
    return tuple(rows_of("protections"))
