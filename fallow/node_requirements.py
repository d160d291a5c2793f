"""Decide whether a pod may run on a node: node selector, required node affinity, taints, GPU model.

It is the part of scheduling that does not depend on what is free (kube-scheduler's plug-ins
NodeAffinity and TaintToleration, HAMi's `use-gputype`). The collector stores what a pod requires of
its node under the keys of `fallow/stored_annotations.py`; `node.labels` and `node.taints` have the
other side.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from fallow.gpu_models import parse_models
from fallow.selectors import LabelExpression
from fallow.stored_annotations import AFFINITY, SELECTOR, TOLERATIONS

_BLOCKING = frozenset({"NoSchedule", "NoExecute"})


class BlockingTaint(NamedTuple):
    """A taint of a node that keeps pods away."""

    key: str
    value: str
    effect: str


class TaintToleration(NamedTuple):
    """A toleration of a pod; an empty key or effect covers all."""

    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: BlockingTaint) -> bool:
        """Return whether it tolerates a taint (k8s.io api core/v1, ToleratesTaint)."""
        if self.effect not in {"", taint.effect} or self.key not in {"", taint.key}:
            return False
        if self.operator == "Exists":
            return True
        return self.operator in {"", "Equal"} and bool(self.key) and self.value == taint.value


class NodeRequirements(msgspec.Struct, frozen=True):
    """What a pod requires of its node, apart from capacity; pods with equal ones are equal."""

    selector: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Labels that its node must have, each with its legal values."""
    affinity: tuple[tuple[LabelExpression, ...], ...] = ()
    """Alternatives, one of which its node must meet whole; none = any node."""
    tolerations: tuple[TaintToleration, ...] = ()
    models: tuple[str, ...] = ()
    """GPU models of which its node must have one; none = any."""

    def explain_refusal(
        self,
        labels: Mapping[str, str] | None,
        taints: Collection[BlockingTaint],
        model: str | None = None,
    ) -> str:
        """Return why a node with these labels and taints does not take the pod; empty = it does.

        Labels and a GPU model that are None are unknown and no obstacle; a caller for which unknown
        labels are one passes none (`{}`).
        """
        if labels is not None:
            for key, legal in self.selector:
                if labels.get(key) not in legal:
                    return f"it requires {key}={'|'.join(legal)}, not {labels.get(key)}"
            if self.affinity and not any(
                all(expression.matches(labels) for expression in alternative)
                for alternative in self.affinity
            ):
                return f"it requires {_describe(self.affinity)}"
        for taint in sorted(taints):
            if not any(toleration.covers(taint) for toleration in self.tolerations):
                return f"it does not tolerate the taint {taint.key}"
        if model and self.models and model not in self.models:
            return f"it requires the GPU model {'|'.join(self.models)}, not {model}"
        return ""


UNREADABLE_REQUIREMENTS = NodeRequirements(
    affinity=((LabelExpression("what cannot be read", "In", ()),),)
)
"""Of a pod whose stored requirements cannot be read."""


def read_requirements(annotations: Mapping[str, Any], gpu_spec: object = None) -> NodeRequirements:
    """Return what a row of `pod` requires of its node, from its decoded `annotations`.

    `gpu_spec`: its label of this name, which names GPU models.

    A requirement that is not as a collector writes it fits no node whose labels are known.
    """
    try:
        return NodeRequirements(
            tuple((k, tuple(v)) for k, v in sorted((annotations.get(SELECTOR) or {}).items())),
            tuple(
                tuple(
                    LabelExpression(key, operator, tuple(values)) for key, operator, values in terms
                )
                for terms in annotations.get(AFFINITY) or ()
            ),
            tuple(TaintToleration(*map(str, t)) for t in annotations.get(TOLERATIONS) or ()),
            parse_models(str(gpu_spec or annotations.get("nvidia.com/use-gputype") or "")),
        )
    except (AttributeError, TypeError, ValueError):
        return UNREADABLE_REQUIREMENTS


def read_taints(text: str | None) -> frozenset[BlockingTaint]:
    """Return the taints of a JSON document (`node.taints`) that prevent scheduling."""
    listed = decode_document(text)
    return frozenset(
        BlockingTaint(str(t.get("key")), str(t.get("value") or ""), str(t["effect"]))
        for t in (listed if isinstance(listed, list) else ())
        if isinstance(t, dict) and str(t.get("effect")) in _BLOCKING
    )


def decode_document(text: str | None) -> Any:
    """Return a stored JSON document; null and what is not JSON are None and the text itself."""
    try:
        return msgspec.json.decode(text) if text else None
    except (ValueError, RecursionError):
        return text


def _describe(affinity: Iterable[Iterable[LabelExpression]]) -> str:
    return " or ".join(" and ".join(map(_describe_expression, terms)) for terms in affinity)


def _describe_expression(expression: LabelExpression) -> str:
    values = "|".join(expression.values or ())
    return f"{expression.key} {expression.operator} {values}".rstrip()
