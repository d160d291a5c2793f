"""Read what the annotations and labels of a stored pod forbid."""

import msgspec

from fallow.protections import (
    OWN_DOMAIN,
    read_annotations,
    read_notes,
    read_stored_pod,
    select_protections,
)


def read_vetoes(stored_annotations: str | None, labels: str | None) -> tuple[bool, bool]:
    """Return whether a pod's annotation (JSON) or label forbids a verdict, and one acting.

    An unknown annotation in our domain forbids a verdict.
    """
    forbids = {False: False, True: False}
    stored = read_stored_pod(msgspec.json.decode(stored_annotations) if stored_annotations else {})
    marks = msgspec.json.decode(labels) if labels else {}
    for name, value in {**stored, **select_protections(marks, stored)}.items():
        row = read_annotations().get(name)
        if row is not None and row.veto and row.protects(value):
            forbids[row.veto == "verdict"] = True
        elif row is None and name.startswith(OWN_DOMAIN) and name not in read_notes():
            forbids[True] = True
    return forbids[True], forbids[False]
