"""Read stored findings of one analyzer, with their details."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec

from dashboards.figures.query import LATEST, Filters, run_query
from fallow.protocols import Views
from fallow.window import Window

MOST = 500


class FindingRow(msgspec.Struct, frozen=True):
    """One finding of the last analysis; `details` as its analyzer wrote them."""

    id: str
    kind: str
    cluster: str
    namespace: str
    workload_kind: str
    workload: str
    start: datetime
    end: datetime
    found_at: datetime
    evidence: str
    gpu_hours: float
    usd: Decimal | None
    details: Mapping[str, Any]
    verb: str | None
    advice: str | None
    caution: str | None
    models: Sequence[str]

    @property
    def why(self) -> str:
        """Return the reason in one line, in the analyzer's words."""
        return str(self.details.get("why") or "")


def list_findings(
    views: Views, window: Window, filters: Filters, analyzer: str
) -> tuple[FindingRow, ...]:
    """Return the findings of an analyzer's last run in the window, the most expensive first."""
    rows = run_query(
        views, (LATEST, "analyzer_findings/listed"), window, filters, analyzer=analyzer, most=MOST
    ).to_pylist()
    return tuple(FindingRow(**_read(row)) for row in rows)


def get_mapping(value: object) -> Mapping[str, Any]:
    """Return a part of a document if it is a mapping; another version may have written it."""
    return value if isinstance(value, Mapping) else {}


def get_documents(value: object) -> list[Mapping[str, Any]]:
    """Return the documents of a list, if it is a list."""
    return (
        [document for document in value if isinstance(document, Mapping)]
        if isinstance(value, list)
        else []
    )


def get_number(value: object) -> float:
    """Return a number of a document; 0 if it is not a number."""
    return float(value) if isinstance(value, int | float) else 0.0


def _read(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: row[name].replace(tzinfo=UTC) for name in ("start", "end", "found_at")}
    details = get_mapping(msgspec.json.decode(row["details"]) if row["details"] else None)
    return row | times | {"details": details, "models": tuple(row["models"])}
