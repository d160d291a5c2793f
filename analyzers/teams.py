"""Name the team of findings whose analyzer knows only their object."""

from collections.abc import Sequence

import msgspec

from analyzers.queries import load_sql
from fallow.models import Finding, Subject
from fallow.protocols import Views
from fallow.rows import Row, decode_rows
from fallow.window import Window


class TeamRow(Row, frozen=True):
    """A workload's team in the ledger."""

    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    team: str


def add_teams(views: Views, window: Window, findings: Sequence[Finding]) -> list[Finding]:
    """Return findings with the team of their workload in the ledger.

    Of an object that runs nothing, such as a quota, it is the team of most hours of its namespace.
    """
    if all(f.subject.team or not f.subject.namespace for f in findings):
        return [*findings]
    teams: dict[tuple[str, ...], str] = {}
    for row in decode_rows(views.query(load_sql("teams"), window.bounds()), TeamRow):
        place = (row.cluster, row.namespace)
        teams.setdefault(place, row.team)
        teams.setdefault((*place, row.workload_kind, row.workload), row.team)

    def name_team(subject: Subject) -> str | None:
        place = (subject.cluster, subject.namespace)
        own = teams.get((*place, subject.workload_kind, subject.workload))
        return subject.team or own or teams.get(place)

    return [
        msgspec.structs.replace(
            f, subject=msgspec.structs.replace(f.subject, team=name_team(f.subject))
        )
        for f in findings
    ]
