"""List the faults that a demo plants besides idle devices (`planted.csv`), and who found them."""

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from fallow.models import Finding
from runtime.experiments.planting import convert_hours
from runtime.experiments.truth import Course, Owner
from simulator.world import Spec

TABLE = Path(__file__).with_name("planted.csv")


class Trouble(msgspec.Struct, frozen=True):
    """A planted fault, and the findings about it."""

    kind: str
    subject: str
    analyzer: str
    findings: tuple[str, ...]
    """Ids; empty = no analyzer found it."""


def list_troubles(
    spec: Spec,
    courses: Mapping[Owner, Course],
    behaviours: Mapping[Owner, str],
    findings: Sequence[Finding],
) -> list[Trouble]:
    """Return the planted faults besides idle devices, and the analyzers that found them.

    Work counts from the hours on that its analyzer requires. Nodes count where the world's spec
    names them; random faults of other nodes are not included.
    """
    troubles = []
    for kind, subject, hours in (
        *_list_work_done(courses, behaviours),
        *_list_planted_faults(spec),
    ):
        for row in _list_kinds():
            if row["planted"] == kind and hours >= float(row["least_gpu_hours"]):
                finding_ids = tuple(
                    f.id
                    for f in findings
                    if f.analyzer in row["analyzer"].split()
                    and f.kind in row["kinds"].split()
                    and _is_about(f, subject, row["of"])
                )
                troubles.append(Trouble(kind, subject, row["analyzer"].split()[0], finding_ids))
    return troubles


def _list_work_done(
    courses: Mapping[Owner, Course], behaviours: Mapping[Owner, str]
) -> Iterator[tuple[str, str, float]]:
    for owner, course in sorted(courses.items()):
        worked = convert_hours(course.gpus[~course.idle])
        yield behaviours.get(owner, ""), "/".join(owner), worked


def _list_planted_faults(spec: Spec) -> Iterator[tuple[str, str, float]]:
    yield from sorted({(m.why, m.node, 0.0) for m in spec.planted})
    yield from sorted({("thermal", h.node, 0.0) for h in spec.heat})


def _is_about(finding: Finding, subject: str, of: str) -> bool:
    about = finding.subject
    if of == "node":
        return subject in about.nodes
    return subject == f"{about.namespace}/{about.workload_kind}/{about.workload}"


def _list_kinds() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines))
