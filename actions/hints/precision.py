"""Say to a workload's owner which format its work could run in, and the lines that do it.

The hint is an annotation; the workload is not changed and nothing restarts. Whether the owner took
it is measured afterwards (`waking.py`).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from actions.reclaim.kinds import kinds
from actions.reclaim.subjects import plural, subject
from actions.reclaim.writes import field
from fallow.acting import Decision, Intent
from fallow.errors import RefusedError
from fallow.precision_lines import lines
from fallow.seams import Cluster, Right

HINT = "/metadata/annotations/fallow.dev~1hint"
LONGEST = 8192
"""Characters of a hint; the API takes 256 KiB for all annotations together."""
OPEN = tuple(k for k, row in kinds().items() if row.switch in {"replicas", "field"})
"""Kinds that take an annotation without being anybody's copy: a pod's is lost with the pod."""


class PrecisionExecutor:
    """Annotate a workload with what fewer bits would give it."""

    kinds: ClassVar[frozenset[str]] = frozenset(OPEN)
    capabilities: ClassVar[frozenset[str]] = frozenset({"hint"})
    verbs: ClassVar[frozenset[str]] = frozenset(
        {
            "let tensor cores do FP32's matrix work",
            "train in mixed BF16",
            "train in mixed FP16",
            "try FP8",
            "quantize the weights to FP8",
            "quantize the weights to INT8",
            "quantize the weights to INT4",
        }
    )
    rights: ClassVar[tuple[Right, ...]] = tuple(
        Right(kinds()[name].group, plural(name), ("get", "patch")) for name in OPEN
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the annotation, and its undo.

        Raises:
            RefusedError: it is gone, carries this hint already, or no range was estimated.
            TemporaryError: the API does not answer.
        """
        found = subject(decision, cluster)
        text = hint(decision.parameters, str(found))
        write = field(found.obj, found.target, found.path, HINT, text)
        if write.change.was == write.change.becomes:
            raise RefusedError(f"{found} carries this hint already")
        return Intent(
            target=found.target,
            capability="hint",
            changes=(write.change,),
            undo=(write.undo,),
            notes=(text,),
        )


def hint(said: Mapping[str, Any], whom: str) -> str:
    """Return what the owner is told: the ranges, what they assume, and the lines.

    Raises:
        RefusedError: the finding holds no range.
    """
    ranges = said.get("ranges") or ()
    if not ranges:
        raise RefusedError(f"{whom}: the finding holds no range")
    told = [f"Fallow: {said.get('why', 'its tensor cores sleep')}."]
    for one in ranges:
        low, high = one["times_as_fast"]
        told.append(f"{one['format']}: {low:g} to {high:g} times as fast, estimated.")
        told += [f"  {row.framework}: {row.line}" for row in lines().get(one["format"], ())]
    if assumed := said.get("assumptions"):
        told.append(f"Assumed: {'; '.join(assumed)}.")
    told.append("Sign the accuracy off yourself; nothing was changed.")
    return "\n".join(told)[:LONGEST]
