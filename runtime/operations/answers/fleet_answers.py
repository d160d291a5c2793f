"""Answer an assistant's questions about a fleet: the command line's figures, with their proof.

Each answer has window, unit, coverage, the notes beside the figures, and what proves it. Texts that
may come from a cluster are marked as data (`runtime.rendering.untrusted`).
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

from capacity.replay.answer import build_team_rows, describe_what_if
from fallow.errors import UsageError
from fallow.redaction import redact
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.analysis import explanations, pending
from runtime.operations.analysis.idleness import LATELY
from runtime.operations.answers.fleet import WarehouseFleet
from runtime.rendering import plan_tables
from runtime.rendering.tables import document, round_body
from runtime.rendering.untrusted import EVERY_LEVEL, mark_document, mark_text

if TYPE_CHECKING:
    from runtime.operations.accounting.windows import CoveredHours

UNITS = {
    "gpu_hours": "GPU-hours",
    "usd": "US dollars",
    "pct": "percent",
    "time": "UTC, RFC 3339",
    "missing": "null: not known, which is never zero and never idle",
}
"""Units, by the ending of a field's name."""
ROWS = 0
"""As many rows of each list as fit into a short answer."""
SHORT_ROWS, SHORT = (20, 10, 5, 3, 2, 1), 4_000
"""Rows that are tried, and the characters of a short answer."""
NOTES = 10
MOST_ROWS = 200
ACTION_LEVELS = 2
"""Below these, the keys of an action's document are those of objects of the cluster."""
Answer = dict[str, Any]


class FleetAnswers:
    """Answers from the warehouse of these settings, which is opened for each answer.

    A home that is made, upgraded or restored meanwhile is then read as it is. Nothing is written.
    Each method raises the errors of `fallow.fleet.Fleet`.
    """

    def __init__(
        self,
        settings: Settings,
        options: Mapping[str, str],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`options` are the global options in force, for the commands that prove an answer."""
        self._settings, self._clock = settings, clock
        self._cluster = options.get("cluster")
        self._named = dict(options)
        self._options = [word for name, value in options.items() for word in (f"--{name}", value)]

    def choose(self, cluster: str | None) -> "FleetAnswers":
        """Return the answers about one cluster; None = those of the options in force."""
        if cluster is None:
            return self
        return FleetAnswers(self._settings, {**self._named, "cluster": cluster}, self._clock)

    def spend(self, by: str, window: str | None, view: str, rows: int) -> Answer:
        """Return GPU-hours and dollars per group."""
        _check_rows(rows)
        with self._open() as fleet:
            spend = fleet.spend(by, window, view=view)
        body = {k: v for k, v in spend.document.items() if k not in {"window", "coverage"}}
        names = ",".join(name.strip() for name in by.split(",") if name.strip())
        words = ["spend", "--by", names, "--view", view, "--window", _format(spend.window)]
        return {
            **self._frame(spend.window, spend.document["coverage"], spend.notes, rows),
            **_build_answer(body, rows),
            "proof": self._prove(words, document("spend", spend.document)),
        }

    def findings(
        self, analyzers: Sequence[str], window: str | None, evidence: str | None, rows: int
    ) -> Answer:
        """Return findings, those that save most first."""
        _check_rows(rows)
        with self._open() as fleet:
            table = fleet.findings(*analyzers, window=window, evidence=evidence)
            covered = fleet.cover(table.window)
        listed = round_body({"findings": table.table.to_pylist()})["findings"]
        body = {
            "count": len(listed),
            "reconciliation": table.document["reconciliation"],
            "blocks": table.document["blocks"],
            "findings": listed,
        }
        chosen = [] if evidence is None else ["--evidence", evidence]
        words = ["analyze", *analyzers, *chosen, "--window", _format(table.window)]
        return {
            **self._frame(table.window, covered.coverage, table.notes, rows),
            **_build_answer(body, rows),
            "proof": self._prove(words, document("findings", table.document)),
        }

    def explain(self, prefix: str, rows: int) -> Answer:
        """Return what a stored finding or an action rests on."""
        _check_rows(rows)
        with self._open() as fleet:
            body = fleet.explain(prefix).document
            finding = body.get("finding")
            window = None if finding is None else msgspec.convert(finding["window"], Window)
            covered = fleet.cover(window)
        is_action = finding is None
        proven = body["action"]["id"] if is_action else body["finding"]["id"]
        noun = explanations.ACTION if is_action else explanations.FINDING
        levels = ACTION_LEVELS if is_action else EVERY_LEVEL
        return {
            **self._frame_covered(covered, rows, window),
            **_build_answer(body, rows, levels),
            "proof": {
                "ids": [_check_id(proven)],
                **self._prove(["explain", proven], document(noun, body)),
            },
        }

    def why_not(self, workload: str, rows: int) -> Answer:
        """Return every gate's answer about a workload."""
        _check_rows(rows)
        with self._open() as fleet:
            report = fleet.why_not(workload)
            starts = [case.window.start for case, _, _ in report.cases]
            since = min(starts, default=report.at)
            window = Window(since, report.at) if since < report.at else None
            covered = fleet.cover(window)
        listed, described = plan_tables.answer_rows(report), plan_tables.describe_report(report)
        # Gates that refuse come first: a bound on rows cuts those that are open.
        ranked = sorted(listed, key=lambda row: row["answer"] == "yes")
        subject = described["workload"]
        words = ["why-not", subject, "--at", report.at.isoformat()]
        proof = self._prove(words, document("why_not", {**described, "why_not": listed}))
        return {
            **self._frame_covered(covered, rows, window),
            **_build_answer(round_body({**described, "why_not": ranked}), rows),
            "proof": {
                "ids": sorted({_check_id(case.id) for case, _, _ in report.cases}),
                **proof,
                "command": mark_text(proof["command"]),
            },
        }

    def queue(self, rows: int) -> Answer:
        """Return who waits for GPUs, the most GPU-hours of waiting first."""
        _check_rows(rows)
        with self._open() as fleet:
            records, at = fleet.read_queue()
            covered = fleet.cover(None)
        listed = [pending.describe_queued(record) for record in records]
        body = {"at": at.isoformat(), "notes": list(pending.NOTES), "queue": listed}
        return {
            **self._frame_covered(covered, rows, None),
            **_build_answer(round_body(body), rows),
            "proof": {"ids": [], **self._prove(["queue"], document("queue", body))},
        }

    def why_pending(self, workload: str, rows: int) -> Answer:
        """Return why a workload waits for GPUs, and where and how it would get in."""
        _check_rows(rows)
        with self._open() as fleet:
            record, at = fleet.why_pending(workload)
            covered = fleet.cover(None)
        described = pending.describe_pending(record, at)
        places = pending.build_place_rows(record.answer)
        body = {**described, "why_pending": places}
        proof = self._prove(
            ["why-pending", str(described["workload"])], document("why_pending", body)
        )
        return {
            **self._frame_covered(covered, rows, None),
            **_build_answer(round_body(body), rows),
            "proof": {"ids": [], **proof, "command": mark_text(proof["command"])},
        }

    def incidents(self, window: str | None, by: str | None, rows: int) -> Answer:
        """Return failures with their causes and costs; with `by` also how often they come."""
        _check_rows(rows)
        with self._open() as fleet:
            report = fleet.read_incidents(window, by)
            covered = fleet.cover(report.window)
        body = round_body({k: v for k, v in report.document.items() if k != "window"})
        chosen = [] if by is None else ["--by", by]
        words = ["incidents", *chosen, "--window", _format(report.window)]
        return {
            **self._frame(report.window, covered.coverage, (report.note,), rows),
            **_build_answer(body, rows),
            "proof": self._prove(words, document("incidents", report.document)),
        }

    def what_if(
        self, options: Mapping[str, Sequence[str]], window: str | None, rows: int
    ) -> Answer:
        """Return the site's past with another quota, pool or priority."""
        _check_rows(rows)
        with self._open() as fleet:
            result = fleet.what_if(options, window)
        described = describe_what_if(result)
        body = {**described, "what-if": build_team_rows(result)}
        bounds = [at.isoformat() for at in result.window.bounds().values()]
        words = ["what-if", "--window", "/".join(bounds)]
        for name, texts in options.items():
            words += [f"--{name}={text}" for text in texts]
        proof = self._prove(words, document("what-if", body))
        return {
            # Pods and nodes are enough: there may be no telemetry to cover the window.
            **self._frame(result.window, None, result.notes, rows),
            **_build_answer(round_body(body), rows),
            "proof": {"ids": [], **proof, "command": mark_text(proof["command"])},
        }

    def idleness(self, cluster: str, namespace: str, kind: str, name: str, rows: int) -> Answer:
        """Return whether a workload is idle, and whether a policy would stop it now.

        Raises:
            UsageError: it held no GPU in the last day, or its name is misspelt.
        """
        _check_rows(rows)
        with self._open() as fleet:
            idleness = fleet.read_idleness(cluster, namespace, kind, name)
            if idleness is None:
                raise UsageError(
                    f"no workload {kind}/{namespace}/{name} held a GPU in cluster {cluster!r} in "
                    "the last day; this does not mean that it is idle",
                    hint="kind, namespace and name of the top owner, such as Deployment ml web",
                )
            window = Window(idleness.since or idleness.at - LATELY, idleness.at)
            covered = fleet.cover(window)
        body = msgspec.structs.asdict(idleness)
        words = shlex.join(["fallow", "why-not", f"{kind}/{namespace}/{name}", *self._options])
        return {
            **self._frame_covered(covered, rows, window),
            **_build_answer(round_body(body), rows),
            "proof": {
                "ids": [] if idleness.case is None else [_check_id(idleness.case)],
                "command": mark_text(words),
                "sha256": None,
            },
        }

    def _open(self) -> WarehouseFleet:
        return WarehouseFleet(self._settings, self._cluster, self._clock)

    def _frame_covered(self, covered: "CoveredHours", rows: int, window: Window | None) -> Answer:
        return self._frame(window or covered.window, covered.coverage, covered.notes, rows)

    def _frame(self, window: Window, coverage: Any, notes: Sequence[str], rows: int) -> Answer:
        """Return the fields that every answer has."""
        body = round_body({"window": window, "coverage": coverage, "notes": list(notes)})
        marked, _ = mark_document(body, rows=rows or NOTES)
        return {"window": marked["window"], "unit": UNITS, **marked}

    def _prove(self, words: Sequence[str], text: str) -> dict[str, Any]:
        """Return the command that gives these figures, and the digest of what it prints."""
        command = shlex.join(["fallow", *words, *self._options, "-o", "json"])
        return {"command": command, "sha256": hashlib.sha256(redact(text).encode()).hexdigest()}


def _build_answer(body: Mapping[str, Any], rows: int, levels: int = EVERY_LEVEL) -> Answer:
    marked, left_out = mark_document(body, rows=rows or SHORT_ROWS[0], levels=levels)
    for limit in () if rows else SHORT_ROWS[1:]:
        if len(json.dumps(marked, default=str)) <= SHORT:
            break
        marked, left_out = mark_document(body, rows=limit, levels=levels)
    count = {"rows": left_out.rows, "characters": left_out.characters}
    return {"answer": marked, "left_out": count}


def _check_rows(rows: int) -> None:
    if not 0 <= rows <= MOST_ROWS:
        raise UsageError(f"rows is {rows}", hint=f"0 (a short answer) to {MOST_ROWS}")


def _check_id(text: Any) -> str:
    """Return an id: what is none is not passed on."""
    return text if isinstance(text, str) and text.isalnum() and text.isascii() else ""


def _format(window: Window) -> str:
    return f"{window.start:%Y-%m-%dT%H:%M}/{window.end:%Y-%m-%dT%H:%M}"
