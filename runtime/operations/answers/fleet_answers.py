"""Answer an assistant's questions about a fleet: the command line's figures, with their proof.

Each answer has window, unit, coverage, the notes beside the figures, and what proves it. Texts that
may come from a cluster are marked as data (`runtime.rendering.untrusted`).
"""

import hashlib
import json
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal

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
SHORT_ROWS, SHORT = (20, 10, 5, 3, 2, 1), 2_800
"""Rows that are tried, and the characters of a short answer: with its window, units and proof it
has at most 4,000."""
LONG = frozenset({"queries", "rates"})
"""What a short explanation leaves out: the command of its proof prints it."""
NOTES = 10
MOST_ROWS = 200
ACTION_LEVELS = 2
"""Below these, the keys of an action's document are those of objects of the cluster."""
MEASURED = "measured"
"""The coverage of a reply that is that of its window."""
Answer = dict[str, Any]


class FleetReply(msgspec.Struct, frozen=True):
    """What a question reads from a fleet."""

    words: tuple[str, ...]
    """Of the command that gives the same figures."""
    document: Mapping[str, Any] | None
    """What the command prints with `-o json`; None = it prints something else."""
    body: Mapping[str, Any]
    """What an assistant gets of it."""
    window: Window | None = None
    """None = the one that has data."""
    noun: str = ""
    """Of the document; empty = the command's."""
    ids: tuple[Any, ...] | None = None
    """Of findings and actions that prove it; None = it needs none."""
    notes: tuple[str, ...] | None = None
    """None = those about the hours of the window."""
    coverage: Any = MEASURED
    """None = no telemetry is needed."""
    levels: int = EVERY_LEVEL
    is_marked: bool = False
    """Whether the command has names of the cluster."""


class FleetAnswers:
    """Answers from the warehouse of these settings, which is opened for each answer.

    A home that is made, upgraded or restored meanwhile is then read as it is. Nothing is written.
    `QUESTIONS` are an assistant's tools, with these signatures and texts. Each raises the errors of
    `fallow.fleet.Fleet`.
    """

    def __init__(
        self,
        settings: Settings,
        options: Mapping[str, str],
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`options` are the global options in force, for the commands that prove an answer."""
        self._settings, self._options, self._clock = settings, options, clock

    def spend(
        self,
        by: str = "team",
        window: str | None = None,
        view: Literal["loaded", "gpu"] = "loaded",
        rows: int = ROWS,
        cluster: str | None = None,
    ) -> Answer:
        """Show GPU-hours and dollars that add up to the capacity and to the bill.

        by: comma-separated of cluster, namespace, team, workload, model, pool, node, state.
        window: such as 7d or START/END in UTC; without it the last 7 days of data.
        view: loaded is the price of the whole node, gpu that of its GPUs.
        """

        def read(fleet: WarehouseFleet) -> FleetReply:
            table = fleet.spend(by, window, view=view)
            names = ",".join(name.strip() for name in by.split(",") if name.strip())
            return FleetReply(
                ("spend", "--by", names, "--view", view, "--window", _format(table.window)),
                table.document,
                {k: v for k, v in table.document.items() if k not in {"window", "coverage"}},
                table.window,
                notes=table.notes,
                coverage=table.document["coverage"],
            )

        return self._answer(rows, cluster, read)

    def findings(
        self,
        analyzers: list[str] | None = None,
        window: str | None = None,
        evidence: Literal["confirmed", "suspected"] | None = None,
        rows: int = ROWS,
        cluster: str | None = None,
    ) -> Answer:
        """Find waste, with evidence and price, and what removing it saves; the largest first.

        analyzers: such as idle; without it all of them, which takes longest. Nothing is stored.
        """
        names = analyzers or []

        def read(fleet: WarehouseFleet) -> FleetReply:
            table = fleet.findings(*names, window=window, evidence=evidence)
            listed = round_body({"findings": table.table.to_pylist()})["findings"]
            summary = {name: table.document[name] for name in ("reconciliation", "blocks")}
            chosen = [] if evidence is None else ["--evidence", evidence]
            return FleetReply(
                ("analyze", *names, *chosen, "--window", _format(table.window)),
                table.document,
                {"count": len(listed), **summary, "findings": listed},
                table.window,
                noun="findings",
                notes=table.notes,
            )

        return self._answer(rows, cluster, read)

    def explain(self, id: str, rows: int = ROWS, cluster: str | None = None) -> Answer:  # noqa: A002  (its public name)
        """Show what a stored finding or an action rests on: rows, SQL, rate and arithmetic.

        id: of a finding or an action, or its beginning.
        """

        def read(fleet: WarehouseFleet) -> FleetReply:
            body = fleet.explain(id).document
            finding = body.get("finding")
            proven = body["action"]["id"] if finding is None else finding["id"]
            return FleetReply(
                ("explain", proven),
                body,
                {key: part for key, part in body.items() if rows or key not in LONG},
                None if finding is None else msgspec.convert(finding["window"], Window),
                noun=explanations.ACTION if finding is None else explanations.FINDING,
                ids=(proven,),
                levels=ACTION_LEVELS if finding is None else EVERY_LEVEL,
            )

        return self._answer(rows, cluster, read)

    def why_not(self, workload: str, rows: int = ROWS, cluster: str | None = None) -> Answer:
        """Show why a workload is not acted upon: the gates' answers, those that refuse first.

        workload: Kind/namespace/name, or a part of it.
        """

        def read(fleet: WarehouseFleet) -> FleetReply:
            report = fleet.why_not(workload)
            starts = [case.window.start for case, _, _ in report.cases]
            since = min(starts, default=report.at)
            listed = plan_tables.answer_rows(report)
            described = plan_tables.describe_report(report)
            # Gates that refuse come first: a bound on rows cuts those that are open.
            ranked = sorted(listed, key=lambda row: row["answer"] == "yes")
            return FleetReply(
                ("why-not", described["workload"], "--at", report.at.isoformat()),
                {**described, "why_not": listed},
                {**described, "why_not": ranked},
                Window(since, report.at) if since < report.at else None,
                noun="why_not",
                ids=tuple(case.id for case, _, _ in report.cases),
                is_marked=True,
            )

        return self._answer(rows, cluster, read)

    def queue(self, rows: int = ROWS, cluster: str | None = None) -> Answer:
        """Show who waits for GPUs: GPU-hours, their price, why, blocked by whom, ways in.

        waiting_cost is not part of the bill. A way in that holds names the nodes of a placement.
        """

        def read(fleet: WarehouseFleet) -> FleetReply:
            records, at = fleet.read_queue()
            listed = [pending.describe_queued(record) for record in records]
            body = {"at": at.isoformat(), "notes": list(pending.NOTES), "queue": listed}
            return FleetReply(("queue",), body, body, ids=())

        return self._answer(rows, cluster, read)

    def why_pending(self, workload: str, rows: int = ROWS, cluster: str | None = None) -> Answer:
        """Show why a workload waits for GPUs, who blocks it, and where and how it would get in.

        workload: Kind/namespace/name, or a part of it. A place fits only on devices that are known
        to be free; nothing is moved.
        """

        def read(fleet: WarehouseFleet) -> FleetReply:
            record, at = fleet.why_pending(workload)
            described = pending.describe_pending(record, at)
            body = {**described, "why_pending": pending.build_place_rows(record.answer)}
            words = ("why-pending", str(described["workload"]))
            return FleetReply(words, body, body, noun="why_pending", ids=(), is_marked=True)

        return self._answer(rows, cluster, read)

    def incidents(
        self,
        window: str | None = None,
        by: Literal["job", "node", "gpu", "model", "cause"] | None = None,
        rows: int = ROWS,
        cluster: str | None = None,
    ) -> Answer:
        """Show failures of workloads and devices: ranked causes, evidence, one step, dollars.

        by: also MTBF with its interval, trend, and what is worse than its peers. A step is advice:
        nothing is restarted. unknown costs are not 0.
        """

        def read(fleet: WarehouseFleet) -> FleetReply:
            report = fleet.read_incidents(window, by)
            chosen = [] if by is None else ["--by", by]
            return FleetReply(
                ("incidents", *chosen, "--window", _format(report.window)),
                report.document,
                {k: v for k, v in report.document.items() if k != "window"},
                report.window,
                notes=(report.note,),
            )

        return self._answer(rows, cluster, read)

    def what_if(  # noqa: PLR0917  (arguments of a tool)
        self,
        quota: list[str] | None = None,
        pool: list[str] | None = None,
        priority: list[str] | None = None,
        window: str | None = None,
        rows: int = ROWS,
        cluster: str | None = None,
    ) -> Answer:
        """Replay the site's own past with another quota, pool or priority: before and after.

        quota: TEAM=GPUs. pool: MODEL=GPUs. priority: TEAM=N. Waits, completion times, utilisation,
        shares, preemptions, lost work, dollars. Quote calibration.trust beside every figure.
        """
        options = {"quota": quota or [], "pool": pool or [], "priority": priority or []}

        def read(fleet: WarehouseFleet) -> FleetReply:
            result = fleet.what_if(options, window)
            body = {**describe_what_if(result), "what-if": build_team_rows(result)}
            bounds = "/".join(at.isoformat() for at in result.window.bounds().values())
            chosen = [f"--{name}={text}" for name, texts in options.items() for text in texts]
            return FleetReply(
                ("what-if", "--window", bounds, *chosen),
                body,
                body,
                result.window,
                ids=(),
                notes=result.notes,
                coverage=None,  # pods and nodes are enough: there may be no telemetry
                is_marked=True,
            )

        return self._answer(rows, cluster, read)

    def idleness(
        self, namespace: str, kind: str, name: str, rows: int = ROWS, cluster: str | None = None
    ) -> Answer:
        """Show whether a whole workload is busy, idle, partly_idle or unknown now, and why.

        actionable is true only if a policy would stop it now. kind and name are those of the top
        owner, such as Deployment, Job or Notebook.
        """
        where = cluster or self._settings.cluster

        def read(fleet: WarehouseFleet) -> FleetReply:
            idleness = fleet.read_idleness(where, namespace, kind, name)
            if idleness is None:
                raise UsageError(
                    f"no workload {kind}/{namespace}/{name} held a GPU in cluster {where!r} in "
                    "the last day; this does not mean that it is idle",
                    hint="kind, namespace and name of the top owner, such as Deployment ml web",
                )
            return FleetReply(
                ("why-not", f"{kind}/{namespace}/{name}"),
                None,
                msgspec.structs.asdict(idleness),
                Window(idleness.since or idleness.at - LATELY, idleness.at),
                ids=() if idleness.case is None else (idleness.case,),
                is_marked=True,
            )

        return self._answer(rows, None, read)

    def _answer(
        self, rows: int, cluster: str | None, read: Callable[[WarehouseFleet], FleetReply]
    ) -> Answer:
        """Return an answer about one cluster; None = that of the options in force."""
        if not 0 <= rows <= MOST_ROWS:
            raise UsageError(f"rows is {rows}", hint=f"0 (a short answer) to {MOST_ROWS}")
        options = self._options if cluster is None else {**self._options, "cluster": cluster}
        with WarehouseFleet(self._settings, options.get("cluster"), self._clock) as fleet:
            reply = read(fleet)
            window, notes, coverage = reply.window, reply.notes, reply.coverage
            if coverage == MEASURED:
                covered = fleet.cover(window)
                window, coverage = window or covered.window, covered.coverage
                notes = covered.notes if notes is None else notes
        frame = round_body({"window": window, "coverage": coverage, "notes": list(notes or ())})
        marked, _ = mark_document(frame, rows=rows or NOTES)
        return {
            "window": marked["window"],
            "unit": UNITS,
            **marked,
            **_build_answer(round_body(reply.body), rows, reply.levels),
            "proof": _build_proof(reply, options),
        }


QUESTIONS = (
    FleetAnswers.spend,
    FleetAnswers.findings,
    FleetAnswers.explain,
    FleetAnswers.why_not,
    FleetAnswers.queue,
    FleetAnswers.why_pending,
    FleetAnswers.incidents,
    FleetAnswers.what_if,
    FleetAnswers.idleness,
)
"""What an assistant may ask."""


def _build_proof(reply: FleetReply, options: Mapping[str, str]) -> dict[str, Any]:
    """Return the command that gives these figures, and the digest of what it prints."""
    named = [word for name, value in options.items() for word in (f"--{name}", value)]
    digest = None
    if reply.document is not None:
        named += ["-o", "json"]
        text = redact(document(reply.noun or reply.words[0], reply.document))
        digest = hashlib.sha256(text.encode()).hexdigest()
    command = shlex.join(["fallow", *reply.words, *named])
    ids = {} if reply.ids is None else {"ids": sorted({_check_id(each) for each in reply.ids})}
    return {
        **ids,
        "command": mark_text(command) if reply.is_marked else command,
        "sha256": digest,
    }


def _build_answer(body: Mapping[str, Any], rows: int, levels: int = EVERY_LEVEL) -> Answer:
    marked, left_out = mark_document(body, rows=rows or SHORT_ROWS[0], levels=levels)
    for limit in () if rows else SHORT_ROWS[1:]:
        if len(json.dumps(marked, default=str)) <= SHORT:
            break
        marked, left_out = mark_document(body, rows=limit, levels=levels)
    count = {"rows": left_out.rows, "characters": left_out.characters}
    return {"answer": marked, "left_out": count}


def _check_id(text: Any) -> str:
    """Return an id: what is none is not passed on."""
    return text if isinstance(text, str) and text.isalnum() and text.isascii() else ""


def _format(window: Window) -> str:
    return f"{window.start:%Y-%m-%dT%H:%M}/{window.end:%Y-%m-%dT%H:%M}"
