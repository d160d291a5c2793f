"""Bound what smaller instances save: only GPUs that nobody needs any more are saved.

A pod that takes an instance leaves the rest of its GPU to others. Where GPUs of its model are
divided already, its instance is one of these. Else the pods that fit on instances of the model in
its cluster have to share: of P pods on P GPUs that need B together, each saves 1 - B/P. A pod alone
leaves a rest that nobody uses: its saving is an upper limit, and never confirmed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from analyzers.sizing.rows import WorkloadUse
from analyzers.sizing.symptoms import Symptom
from fallow import mig

INSTANCE = "mig_profile"
Judged = tuple[WorkloadUse, Symptom | None]
Pool = tuple[str, str]
"""A cluster and a GPU model."""


def bound_savings(judged: Sequence[Judged]) -> Iterator[Judged]:
    """Yield workloads with their symptoms, whose instances save what others can use."""
    divided = {_get_pool(row) for row, _ in judged if row.instance}
    pods: dict[Pool, Counter[str]] = {}
    for row, symptom in judged:
        profile = _find_instance(symptom)
        if profile is not None and not row.instance:
            pods.setdefault(_get_pool(row), Counter())[profile["profile"]] += row.gpus
    for row, symptom in judged:
        pool = _get_pool(row)
        if symptom is None or _find_instance(symptom) is None or pool in divided:
            yield row, symptom
        else:
            yield row, _bound(symptom, _compute_saved(pool[1], pods[pool]))


def _get_pool(row: WorkloadUse) -> Pool:
    return row.cluster, row.model or ""


def _find_instance(symptom: Symptom | None) -> dict[str, Any] | None:
    """Return the words of the advice to take an instance; None = there is no such advice."""
    advice = symptom.advice if symptom is not None else ()
    return next((words for kind, _, words in advice if kind == INSTANCE), None)


def _compute_saved(model: str, pods: Counter[str]) -> float:
    """Return the share of their GPUs that these pods save together."""
    profiles = mig.read_models()[model]
    return 1 - _count_gpus(profiles, pods.elements()) / pods.total()


def _count_gpus(profiles: dict[str, mig.Profile], names: Iterable[str]) -> int:
    """Return the GPUs that hold these instances, the largest placed first, the fullest first."""
    whole = max(p.compute for p in profiles.values()), max(p.size for p in profiles.values())
    in_use: Counter[tuple[int, int]] = Counter()
    """By the compute and memory slices that are left."""
    wanted = sorted((profiles[name] for name in names), key=lambda p: (-p.size, -p.compute))
    for profile in wanted:
        fitting = [
            slices
            for slices, count in in_use.items()
            if count and slices[0] >= profile.compute and slices[1] >= profile.size
        ]
        left = min(fitting, default=whole)
        if left != whole:
            in_use[left] -= 1
        in_use[left[0] - profile.compute, left[1] - profile.size] += 1
    return in_use.total()


def _bound(symptom: Symptom, saved: float) -> Symptom:
    """Return the symptom with what others can use of the GPU; without any, an upper limit."""
    bounded = [
        (kind, min(share, saved) if kind == INSTANCE else share, words)
        for kind, share, words in symptom.advice
    ]
    sure = sorted((a for a in bounded if a[1] > 0), key=lambda a: (-a[1], a[0]))
    if not sure:
        return msgspec.structs.replace(symptom, evidence="suspected", ceiling=True)
    return msgspec.structs.replace(symptom, share=sure[0][1], advice=tuple(sure))
