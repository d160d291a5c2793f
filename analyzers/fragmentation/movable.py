"""Which pods may move, and which move together: by owner, annotations, volumes and budgets."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

import msgspec

from analyzers.queries import rows_of
from analyzers.witnesses import protections

LOCAL = "fallow.local-volumes"
SELECTOR = "fallow.selector"
PVCS = "fallow.pvcs"
BUDGET = "fallow.disruption-budget"
"""Name of the pod's disruption budget and how many of its pods may be disrupted now."""

SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
MIRROR = "kubernetes.io/config.mirror"
GROUPS = ("scheduling.k8s.io/group-name", "pod-group-name")
"""Annotations that name the gang of a pod: Volcano's, KAI's."""


class Kind(msgspec.Struct, frozen=True):
    """One kind of owner: may its pods move, do they restart together, and why."""

    moves: bool
    together: bool
    why: str


class Terms(msgspec.Struct, frozen=True):
    """On what terms a pod may move."""

    stays: str = ""
    """Why it may not; empty = it may."""
    group: str = ""
    zonal: bool = False
    selector: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels that its node must bear, each with its legal values."""
    budget: str = ""
    allowed: int = 0


@cache
def kinds() -> dict[str, Kind]:
    """Return what is known of each kind of owner (`movable_kinds.csv`)."""
    return {
        row["workload_kind"]: Kind(row["moves"] == "1", row["together"] == "1", row["why"])
        for row in rows_of("fragmentation/movable_kinds")
    }


def terms(pod: Mapping[str, Any], also: Collection[str] = ()) -> Terms:
    """Return on what terms a row of `pods.sql` may move.

    `also` are kinds of owners that the site lets move although `movable_kinds.csv` does not.
    """
    words = msgspec.json.decode(pod["annotations"]) if pod["annotations"] else {}
    kind = pod["workload_kind"] or ""
    known = kinds().get(kind)
    gang = next((words[name] for name in GROUPS if words.get(name)), None)
    group = ""
    if gang is not None:
        group = f"{pod['namespace']}/{gang}"
    elif known is not None and known.together:
        group = f"{pod['namespace']}/{kind}/{pod['workload']}"
    selector = words.get(SELECTOR) or {}
    budget = words.get(BUDGET) or {}
    return Terms(
        _stays(pod, words, known, also),
        group,
        bool(words.get(PVCS)),
        tuple((key, tuple(values)) for key, values in sorted(selector.items())),
        f"{pod['namespace']}/{budget['name']}" if budget else "",
        int(budget.get("allowed", 0)),
    )


def _stays(
    pod: Mapping[str, Any], words: Mapping[str, Any], known: Kind | None, also: Collection[str]
) -> str:
    kind = pod["workload_kind"]
    reasons = (
        (any(protections([dict(pod)])), "an annotation protects it"),
        (MIRROR in words or pod["owner_kind"] in {"DaemonSet", "Node"}, "it belongs to its node"),
        (kind is None, "its owner could not be resolved"),
        (words.get(LOCAL) and str(words.get(SAFE)).lower() != "true", "it keeps data on its node"),
        (kind not in also and known is None, f"{kind}: nothing is known of how it restarts"),
        (kind not in also and known is not None and not known.moves, f"{kind}: {_why(known)}"),
    )
    return next((why for holds, why in reasons if holds), "")


def _why(known: Kind | None) -> str:
    return known.why if known else ""
