"""Fallow's own telemetry: /metrics and /healthz of `fallow up`.

No workload, pod or team is a label: details belong to the warehouse.
"""

import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import TYPE_CHECKING, Self

from prometheus_client import CollectorRegistry, Counter, Gauge, Summary, generate_latest

from fallow.errors import UsageError
from fallow.nouns import Finding
from fallow.window import Window

if TYPE_CHECKING:
    from actions.loop.seams import TurnReport
    from warehouse.audits import AuditFailure
    from warehouse.lake import Warehouse


class SelfMetrics:
    """The fallow_* metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._seconds = Summary(
            "fallow_collect_duration_seconds", "Time of one collection", ["collector"],
            registry=registry,
        )  # fmt: skip
        self._rows = Counter(
            "fallow_collect_rows", "Rows stored by a collector", ["collector"], registry=registry
        )
        self._up = Gauge(
            "fallow_up", "Whether a collector's last collection went well", ["collector"],
            registry=registry,
        )  # fmt: skip
        self._failed = Counter(
            "fallow_job_failures", "Turns of a job that failed", ["job"], registry=registry
        )
        self._audits = Gauge(
            "fallow_audit_failures", "Failures of each audit in its last run", ["audit"],
            registry=registry,
        )  # fmt: skip
        self._findings = Gauge(
            "fallow_findings", "Findings of the last analysis", ["analyzer"], registry=registry
        )
        self._waste = Gauge(
            "fallow_waste_usd_per_hour", "Dollars found per hour of the window", ["analyzer"],
            registry=registry,
        )  # fmt: skip
        self._steps = Counter(
            "fallow_act_steps", "What turns of acting did, by result", ["result"], registry=registry
        )
        self._outcomes = Counter(
            "fallow_act_outcomes", "Actions by what came of them", ["result"], registry=registry
        )
        self._open = Gauge(
            "fallow_act_open", "Actions whose outcome is still to come", registry=registry
        )
        self._halted = Gauge(
            "fallow_act_halted", "1 while nothing acts: frozen, another actor", registry=registry
        )
        self._beat = Gauge(
            "fallow_act_last_turn_timestamp_seconds", "When the last turn was over",
            registry=registry,
        )  # fmt: skip
        self._age = Gauge(
            "fallow_data_age_seconds", "Age of the newest row of a tier", ["tier"],
            registry=registry,
        )  # fmt: skip
        self._bytes = Gauge("fallow_warehouse_bytes", "Bytes of a tier", ["tier"],
                            registry=registry)  # fmt: skip

    def collected(self, name: str, seconds: float, *, added: int, up: bool) -> None:
        """Record one collection."""
        self._seconds.labels(name).observe(seconds)
        self._rows.labels(name).inc(added)
        self._up.labels(name).set(up)

    def failed(self, job: str) -> None:
        """Record a turn that failed."""
        self._failed.labels(job).inc()

    def audited(self, failures: "Sequence[AuditFailure]") -> None:
        """Record the last audits: only those that failed have a series above zero."""
        self._audits.clear()
        for failure in failures:
            self._audits.labels(failure.audit).inc()

    def found(self, findings: Sequence[Finding], window: Window) -> None:
        """Record the last analysis."""
        self._findings.clear()
        self._waste.clear()
        hours = window.seconds / 3600
        for finding in findings:
            self._findings.labels(finding.analyzer).inc()
            self._waste.labels(finding.analyzer).inc(float(finding.usd or 0) / hours)

    def acted(self, report: "TurnReport") -> None:
        """Record one turn of acting; its moment is the actor's heartbeat."""
        for taken in report.taken:
            self._steps.labels(taken.result).inc()
        for outcome in report.closed:
            self._outcomes.labels(outcome.result).inc()
        self._open.set(len(report.open))
        self._halted.set(bool(report.halted))
        self._beat.set(report.at.timestamp())

    def tidied(self, warehouse: "Warehouse", now: datetime) -> None:
        """Record the tiers' sizes and ages."""
        from warehouse import maintenance  # noqa: PLC0415  (the engine loads in 0.3 s)

        rows = maintenance.status(warehouse).to_pylist()
        for tier in {row["tier"] for row in rows}:
            lying = [row for row in rows if row["tier"] == tier]
            self._bytes.labels(tier).set(sum(row["bytes"] or 0 for row in lying))
            newest = max((row["newest"] for row in lying if row["newest"]), default=None)
            if newest is not None:
                self._age.labels(tier).set((now - newest.replace(tzinfo=UTC)).total_seconds())

    def text(self) -> bytes:
        """Return the exposition."""
        return generate_latest(self.registry)


class Endpoint:
    """Answers /metrics and /healthz on `host:port`; port 0 takes a free one."""

    def __init__(self, listen: str, metrics: SelfMetrics) -> None:
        host, _, port = listen.rpartition(":")
        if not host or not port.isdigit():
            raise UsageError(
                f"service.listen {listen!r} is not host:port", hint="such as 127.0.0.1:9410"
            )
        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), _handler(metrics))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {listen}: {error.strerror or error}",
                hint="another port with --listen or service.listen; :0 takes a free one",
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Return host:port as bound."""
        return "{}:{}".format(*self._server.server_address[:2])

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(metrics: SelfMetrics) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers: dict[str, Callable[[], bytes]] = {
                "/metrics": metrics.text,
                "/healthz": lambda: b"ok\n",
            }
            answer = answers.get(self.path.partition("?")[0])
            body = answer() if answer else b"not here; /metrics and /healthz are\n"
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: object) -> None:
            """Say nothing: scrapes are no news."""

    return Handler
