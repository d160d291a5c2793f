"""Read what stored incidents say of suspended jobs."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache

import msgspec

from fallow.protocols import Views
from fallow.resources import read_table, read_text
from fallow.rows import Row, decode_rows


class IncidentStep(Row, frozen=True):
    """What a stored incident says of a job (`incident_steps.sql`)."""

    id: str
    cause: str
    step: str
    evidence: str | None

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes that signals of the cause name."""
        signals = msgspec.json.decode(self.evidence or "[]")
        return tuple(sorted({s["node"] for s in signals if s.get("of_cause") and s.get("node")}))


def read_incident_steps(
    views: Views, cluster: str, workload: str, since: datetime, until: datetime
) -> list[IncidentStep]:
    """Return the incidents of a job (namespace/kind/name) with a sign in a time, newest first."""
    sql = read_text("analyzers.suspended", "incident_steps.sql")
    parameters = {"cluster": cluster, "workload": workload, "since": since, "until": until}
    return decode_rows(views.query(sql, parameters), IncidentStep)


@cache
def read_ends() -> Mapping[str, str]:
    """Return what ends the reason of a stop, by the step of its incident (`ends.csv`)."""
    rows = read_table("analyzers.suspended", "ends.csv")
    return {each["step"]: each["ends"] for each in rows}
