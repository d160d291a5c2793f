"""Pack openb's pods onto every instance type that can be bought: time, cost, and the lower bound.

The pods are openb's own list where the public data set lies beside the checkout; elsewhere about
as many of its published mix (`fallow/typical_pods.csv`), which knows no memory.
"""

import csv
from collections import Counter
from decimal import Decimal
from pathlib import Path

from analyzers.pools.catalogue import NodeOverhead, OfferTerms, list_offers
from analyzers.pools.planning import plan_mix
from analyzers.pools.rows import TypePrice
from analyzers.pools.shapes import WHOLE, PackingProblem, PodShape, TypeOffer
from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.resources import read_table

PODS = 8_152
OPENB = Path(__file__).resolve().parents[2] / "shared/data/openb/openb_pod_list_default.csv"


def run(small: bool) -> list[Result]:
    """Measure all 8,152 pods against the whole catalogue; small: every sixteenth pod."""
    shapes, source = _build_pods()
    pods = Counter(shapes[:: 16 if small else 1])
    before = read_peak_gib()
    watch = Stopwatch()
    problem = PackingProblem(pods, _build_offers())
    plan_found = plan_mix(problem)
    lap = watch.read()
    return [
        Result(
            name=f"{pods.total()} pods packed onto {len(problem.offers)} types",
            value=lap.wall_s,
            unit="s",
            cpu_s=lap.cpu_s,
            reach=20,
            note=f"{source}; {read_peak_gib() - before:.2f} GiB",
        ),
        Result(
            name="packed above the lower bound",
            value=100 * plan_found.gap,
            unit="%",
            note=f"{plan_found.usd_h:.2f} USD/h on {len(plan_found.nodes.kind)} nodes, "
            f"bound {plan_found.bound_usd_h:.2f}; best single type "
            f"{_measure_alone(plan_found.alone)}",
        ),
    ]


def _measure_alone(alone: tuple[tuple[str, int, float], ...]) -> str:
    return f"{alone[0][0]} {alone[0][2]:.2f}" if alone else "none"


def _build_offers() -> list[TypeOffer]:
    """Return AWS's types at the prices of the built-in card, less what DaemonSets take."""
    prices = [
        TypePrice(
            provider=row["provider"],
            region=row["region"],
            zone="",
            instance_type=row["instance_type"],
            term=row["term"],
            node_usd_h=Decimal(row["usd_per_hour"]),
            as_of=None,
            reference=row["reference"],
        )
        for row in read_table("collectors.prices", "rate_card.csv")
        if row["usd_per_hour"]
    ]
    overhead = NodeOverhead(1000, 2048, 8, seen=False)
    return list_offers(prices, OfferTerms("aws", "us-east-1", "on-demand"), overhead, 110)


def _build_pods() -> tuple[list[PodShape], str]:
    if OPENB.exists():
        with OPENB.open(encoding="utf-8") as lines:
            return [_build_shape(row) for row in csv.DictReader(lines)], "openb's own list"
    rows = read_table("fallow", "typical_pods.csv")
    part = PODS / sum(int(row["pods"]) for row in rows)
    pod_shapes = [_build_shape(row) for row in rows for _ in range(round(int(row["pods"]) * part))]
    return pod_shapes, "openb's published mix"


def _build_shape(row: dict[str, str]) -> PodShape:
    gpus = int(row.get("num_gpu") or row.get("gpus") or 0)
    milli = int(row["gpu_milli"]) if gpus else WHOLE
    return PodShape(
        gpus=gpus,
        milli=milli,
        cpu_milli=int(row["cpu_milli"]),
        memory_mib=int(row.get("memory_mib") or 0),
        sharing="share" if milli < WHOLE else "",
        vendor="nvidia" if gpus else "",
        arch="amd64",
    )
