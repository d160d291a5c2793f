"""Apply server-side: a manager owns the fields that it applies, until it no longer applies them.

field of another manager, with another value   409, with a cause for each; `force` takes it over
field that only this manager applied before    removed, or reset to its default, unless another
                                                manager owns it too
"""

from collections.abc import Mapping, Sequence
from typing import Any

from simulator.kube.managed import (
    Path,
    build_entry,
    drop_leaves,
    find_item_keys,
    format_path,
    get_value,
    has_leaf,
    list_leaves,
    list_paths,
    remove_leaf,
    union,
)
from simulator.kube.status import StatusError, build_bad_request

Object = dict[str, Any]


def apply(
    old: Mapping[str, Any],
    wanted: Mapping[str, Any],
    *,
    manager: str,
    force: bool,
    custom: bool,
    api_version: str,
    subresource: str,
    time: str,
) -> tuple[Object, list[Object]]:
    """Return the object as a manager applies it, and its `managedFields`.

    Raises:
        ApiError: 409 another manager says something else about a field, 400 it says who manages.
    """
    if (wanted.get("metadata") or {}).get("managedFields"):
        raise build_bad_request("metadata.managedFields must be nil")
    wanted_fields = _drop_nulls({k: v for k, v in wanted.items() if k != "status" or subresource})
    own = list_leaves(wanted_fields, custom=custom)
    entries = list((old.get("metadata") or {}).get("managedFields") or ())
    own_entry, others = _split_entries(entries, (manager, "Apply", subresource))
    wrong = [p for p in own if get_value(old, p) != get_value(wanted_fields, p)]
    other_entries = _take_over(others, wrong, force=force)
    new = _merge(dict(old), wanted_fields, custom=custom)
    if own_entry is not None:
        dropped = [p for p in list_paths(own_entry["fieldsV1"]) if p not in set(own)]
        new = _give_back(new, dropped, other_entries)
    entry = build_entry(
        manager,
        "Apply",
        union({}, own),
        subresource=subresource,
        api_version=api_version,
        time=time,
    )
    if own_entry is not None and own_entry["fieldsV1"] == entry["fieldsV1"] and new == old:
        return dict(old), entries
    return new, [*other_entries, entry] if own else other_entries


def _split_entries(
    entries: Sequence[Object], key: tuple[str, str, str]
) -> tuple[Object | None, list[Object]]:
    """Return the applier's own entry of `managedFields`, and those of the others."""
    own_entry = next((e for e in entries if _build_key(e) == key), None)
    return own_entry, [e for e in entries if e is not own_entry]


def _take_over(others: Sequence[Object], wrong: Sequence[Path], *, force: bool) -> list[Object]:
    """Return the other managers' entries without the fields that the applier takes from them.

    `wrong` are the applied fields that have another value. A field that another manager owns is a
    conflict unless `force`.
    """
    clashes = [(e, p) for e in others for p in wrong if p[-1] != "." and _is_owned(e, p)]
    if clashes and not force:
        raise _build_conflict(clashes)
    conflicting = [p for _, p in clashes]
    entries = [{**e, "fieldsV1": drop_leaves(e["fieldsV1"], conflicting)} for e in others]
    return [e for e in entries if e["fieldsV1"]]


def _give_back(new: Object, dropped: Sequence[Path], other_entries: Sequence[Object]) -> Object:
    """Return the object without the fields that the applier dropped and no other manager owns."""

    def is_free(path: Path) -> bool:
        return not any(_is_owned(e, path) for e in other_entries)

    for path in sorted(dropped, key=len, reverse=True):
        if is_free(path):
            new = remove_leaf(new, path, is_free)
    return new


def _merge(old: Any, new: Any, *, custom: bool, name: str = "") -> Any:
    if isinstance(new, Mapping):
        out = dict(old) if isinstance(old, Mapping) else {}
        for key, value in new.items():
            out[key] = _merge(out.get(key), value, custom=custom, name=key)
        return out
    keys = find_item_keys(name, new, custom=custom)
    if keys is None or not isinstance(old, list):
        return new
    items = list(old)
    for item in new:
        place = next(
            (n for n, i in enumerate(items) if all(i.get(k) == item.get(k) for k in keys)), None
        )
        if place is None:
            items.append(item)
        else:
            items[place] = _merge(items[place], item, custom=custom)
    return items


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: _drop_nulls(v) for k, v in value.items() if v is not None}
    return value


def _is_owned(entry: Mapping[str, Any], path: Path) -> bool:
    return has_leaf(entry["fieldsV1"], path)


def _build_key(entry: Mapping[str, Any]) -> tuple[str, str, str]:
    return entry["manager"], entry["operation"], entry.get("subresource", "")


def _build_conflict(clashes: Sequence[tuple[Mapping[str, Any], Path]]) -> StatusError:
    """Return which managers own which of the fields, in the server's words."""
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_describe_manager(e)}",
            "field": format_path(p),
        }
        for e, p in clashes
    ]
    if len(clashes) == 1:
        text = f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}"
    else:
        lines = []
        for who in sorted({_describe_manager(e) for e, _ in clashes}):
            lines += [
                f"conflicts with {who}:",
                *(f"- {format_path(p)}" for e, p in clashes if _describe_manager(e) == who),
            ]
        text = f"Apply failed with {len(clashes)} conflicts: " + "\n".join(lines)
    return StatusError(409, "Conflict", text, {"causes": causes})


def _describe_manager(entry: Mapping[str, Any]) -> str:
    part = entry.get("subresource")
    through = f' with subresource "{part}"' if part else ""
    return f'"{entry["manager"]}"{through} using {entry["apiVersion"]}'
