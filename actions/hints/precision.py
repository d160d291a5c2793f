"""Suggest a number format to a workload's owner, with the code that uses it.

The hint is an annotation; the workload is not changed and nothing restarts.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from actions.reclaim.kinds import read_kinds
from actions.reclaim.subjects import get_plural, read_workload
from actions.reclaim.writes import set_field
from fallow.action_models import Decision, Intent
from fallow.errors import RefusedError
from fallow.precision_lines import read_framework_lines
from fallow.protocols import ClusterReader, Right

HINT = "/metadata/annotations/fallow.dev~1hint"
MAX_LENGTH = 8192
"""Maximum characters of a hint; the API allows 256 KiB for all annotations together."""
ANNOTATED_KINDS = tuple(k for k, row in read_kinds().items() if row.switch in {"replicas", "field"})
"""Kinds that keep an annotation; one on a pod is lost with the pod."""


class PrecisionExecutor:
    """Annotate a workload with the gain that a smaller number format would give."""

    kinds: ClassVar[frozenset[str]] = frozenset(ANNOTATED_KINDS)
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
        Right(read_kinds()[name].group, get_plural(name), ("get", "patch"))
        for name in ANNOTATED_KINDS
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the annotation, and its undo.

        Raises:
            RefusedError: the workload is gone, has this hint already, or no range was estimated.
            TemporaryError: the API does not answer.
        """
        workload = read_workload(decision, cluster)
        text = format_hint(decision.parameters, str(workload))
        write = set_field(workload.obj, workload.target, workload.path, HINT, text)
        if write.change.was == write.change.becomes:
            raise RefusedError(f"{workload} carries this hint already")
        return Intent(
            target=workload.target,
            capability="hint",
            changes=(write.change,),
            undo=(write.undo,),
            notes=(text,),
        )


def format_hint(parameters: Mapping[str, Any], workload: str) -> str:
    """Return the owner's hint: the ranges, their assumptions, and the lines of code.

    Raises:
        RefusedError: the finding has no range.
    """
    ranges = parameters.get("ranges") or ()
    if not ranges:
        raise RefusedError(f"{workload}: the finding holds no range")
    text_lines = [f"Fallow: {parameters.get('why', 'its tensor cores are idle')}."]
    for speed_range in ranges:
        low, high = speed_range["times_as_fast"]
        text_lines.append(f"{speed_range['format']}: {low:g} to {high:g} times as fast, estimated.")
        text_lines += [
            f"  {row.framework}: {row.line}"
            for row in read_framework_lines().get(speed_range["format"], ())
        ]
    if assumed := parameters.get("assumptions"):
        text_lines.append(f"Assumed: {'; '.join(assumed)}.")
    text_lines.append("Sign the accuracy off yourself; nothing was changed.")
    return "\n".join(text_lines)[:MAX_LENGTH]
