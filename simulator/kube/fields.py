"""Field validation, as far as it goes: fields of `spec` that a built-in kind does not have.

The real server knows every field at every depth. `spec_fields.csv` knows the first level of the
kinds that Fallow writes; what it does not list is stored as it came. A custom kind has the fields
of its definition's schema.
"""

from functools import cache
from typing import Any, cast

from fallow.resources import read_table
from simulator.kube import schemas
from simulator.kube.kinds import ApiKind
from simulator.kube.status import InvalidField, build_bad_request, build_invalid

Object = dict[str, Any]

_TOP = {"apiVersion", "kind", "metadata", "spec", "status"}


@cache
def _read_known_fields() -> dict[str, frozenset[str]]:
    return {
        row["kind"]: frozenset(row["fields"].split())
        for row in read_table("simulator.kube", "spec_fields.csv")
    }


def list_unknown_fields(kind: ApiKind, item: Object) -> list[str]:
    """Return the paths of fields that the kind does not have."""
    if kind.custom:
        return [*schemas.list_unknown_fields(kind.schema, item)] if kind.schema else []
    legal = _read_known_fields().get(kind.key)
    if legal is None:
        return []
    spec = item.get("spec")
    inner = [f"spec.{k}" for k in spec if k not in legal] if isinstance(spec, dict) else []
    return [*(k for k in item if k not in _TOP), *inner]


def prune(kind: ApiKind, item: Object) -> Object:
    """Return an object without the fields that its kind does not have."""
    strange = list_unknown_fields(kind, item)
    if not strange:
        return item
    if kind.custom:
        return cast("Object", schemas.prune(kind.schema, item))
    legal = _read_known_fields()[kind.key]
    out = {k: v for k, v in item.items() if k in _TOP}
    return {**out, "spec": {k: v for k, v in (out.get("spec") or {}).items() if k in legal}}


def refuse(kind: ApiKind, item: Object, *, patch: bool) -> None:
    """Refuse fields that the kind does not have (`fieldValidation=Strict`).

    Raises:
        ApiError: 400 in a whole object, 422 in what a patch would make.
    """
    strange = list_unknown_fields(kind, item)
    if not strange:
        return
    message = "strict decoding error: " + ", ".join(f'unknown field "{f}"' for f in strange)
    if patch:
        raise build_invalid("", "", "", [InvalidField("patch", f"Invalid value: {message}")])
    raise build_bad_request(message)
