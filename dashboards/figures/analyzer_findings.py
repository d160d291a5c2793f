"""Stored findings of one analyzer, with what each says in detail."""

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
        """Return why in one line, as the analyzer says it."""
        return str(self.details.get("why") or "")


def list_findings(
    views: Views, window: Window, filters: Filters, analyzer: str
) -> tuple[FindingRow, ...]:
    """Return what an analyzer's last run found that touches the window, the dearest first."""
    rows = run_query(
        views, (LATEST, "analyzer_findings/listed"), window, filters, analyzer=analyzer, most=MOST
    ).to_pylist()
    return tuple(FindingRow(**_read(row)) for row in rows)


def mapping(value: object) -> Mapping[str, Any]:
    """Return a part of a document where it is one; another version may have written it."""
    return value if isinstance(value, Mapping) else {}


def documents_of(value: object) -> list[Mapping[str, Any]]:
    """Return the documents of a list where it is one."""
    return (
        [document for document in value if isinstance(document, Mapping)]
        if isinstance(value, list)
        else []
    )


def number(value: object) -> float:
    """Return a number of a document; 0 where it is none."""
    return float(value) if isinstance(value, int | float) else 0.0


def _read(row: dict[str, Any]) -> dict[str, Any]:
    times = {name: row[name].replace(tzinfo=UTC) for name in ("start", "end", "found_at")}
    details = mapping(msgspec.json.decode(row["details"]) if row["details"] else None)
    return row | times | {"details": details, "models": tuple(row["models"])}
