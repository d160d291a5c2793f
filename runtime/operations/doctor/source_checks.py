"""Scrape each configured exporter and notebook server once: which respond, and with what."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from collectors.doctor import SLOW, CheckRow, check_signal, format_few, list_fields
from collectors.prometheus.client import SKEW
from fallow.errors import UsageError
from fallow.settings import Settings
from fallow.system.http_client import send_request
from fallow.window import Window, format_duration
from runtime.operations.doctor.fault import build_fault_row
from runtime.operations.ingestion import collection

CLOCKS = 3
"""Exporters whose clock is compared: most of them share one time source."""


def check_exporters(settings: Settings, now: datetime) -> Iterator[CheckRow]:
    """Scrape `exporters.targets` once and return what is there and what is missing."""
    wanted = settings.exporters
    if not wanted.targets:
        return
    try:
        rows = _collect_rows(settings, "exporters", now)
    except UsageError as error:
        yield build_fault_row("targets", error, "correct exporters.targets")
        return
    scrapes, samples = rows.get("scrape", []), rows.get("sample", [])
    yield _check_targets(
        "targets", scrapes, "exporters.targets: does each answer from this machine?"
    )
    yield from _check_devices(samples)
    yield _check_interval(wanted.interval.total_seconds())
    up = [row["target"] for row in scrapes if row["up"] and row["collector"] == "exporters"]
    token = wanted.bearer_token.get_secret_value()
    yield from _check_clocks(up[:CLOCKS], token, wanted.timeout.total_seconds())


def check_notebooks(settings: Settings, now: datetime) -> Iterator[CheckRow]:
    """Poll the notebook servers once."""
    if not settings.jupyter.servers:
        return
    try:
        scrapes = _collect_rows(settings, "jupyter", now).get("scrape", [])
    except UsageError as error:
        yield build_fault_row("notebooks", error, "correct jupyter.servers")
        return
    yield _check_targets("notebooks", scrapes, "jupyter.servers and jupyter.token: see the error")


def _collect_rows(settings: Settings, name: str, now: datetime) -> dict[str, list[dict[str, Any]]]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for collector in collection.load_collectors(settings, [name]).values():
        for batch in collector.collect(Window(now - collection.LOOKBACK, now)):
            rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    return rows


def _check_targets(check: str, scrapes: Sequence[dict[str, Any]], step: str) -> CheckRow:
    down = [row for row in scrapes if not row["up"]]
    if not down:
        return CheckRow(check, "ok", f"all {len(scrapes)} answer")
    named = format_few([f"{row['target']} ({row['error']})" for row in down], most=3)
    finding = f"{len(down)} of {len(scrapes)} do not answer as they should: {named}"
    return CheckRow(check, "bad", finding, step)


def _check_devices(samples: Sequence[dict[str, Any]]) -> Iterator[CheckRow]:
    if not samples:
        step = "is it the GPU exporter's address (dcgm-exporter: port 9400, path /metrics)?"
        yield CheckRow("telemetry", "bad", "no target shows a GPU", step)
        return
    devices = {row["device"]: row for row in samples}
    models = Counter(row["model"] or "unnamed model" for row in devices.values())
    for model, count in sorted(models.items()):
        mine = [r for r in devices.values() if (r["model"] or "unnamed model") == model]
        have = Counter(
            f["column"] for f in list_fields() for r in mine if r[f["column"]] is not None
        )
        instances = any(row["parent"] for row in mine)
        wanted = [f for f in list_fields() if not (instances and f["column"] == "gpu_util_pct")]
        missing = [f for f in wanted if not have[f["column"]]]
        yield check_signal(model, count, have, missing, ())
    named = sum(row["pod"] is not None for row in devices.values())
    finding = f"{named} of {len(devices)} devices name the pod that holds them"
    if named:
        yield CheckRow("labels", "ok", finding)
        return
    step = "run dcgm-exporter with --kubernetes=true (DCGM_EXPORTER_KUBERNETES)"
    yield CheckRow("labels", "warn", finding, f"{step}, or set kubernetes.enabled")


def _check_interval(seconds: float) -> CheckRow:
    finding = f"a scrape every {format_duration(seconds)}"
    if seconds <= SLOW.total_seconds():
        return CheckRow("interval", "ok", finding)
    step = "exporters.interval: 30s; above 60s short bursts are seen only by the energy counter"
    return CheckRow("interval", "warn", finding, step)


def _check_clocks(targets: Sequence[str], token: str, timeout_s: float) -> Iterator[CheckRow]:
    """Compare clocks by the Date header of each response."""
    skews: dict[str, float] = {}
    for target in targets:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            answer = send_request("GET", target, within_s=timeout_s, headers=headers)
            if date := answer.headers.get("date"):
                timestamp = parsedate_to_datetime(date)
                skews[target] = abs((timestamp - datetime.now(UTC)).total_seconds())
        except (OSError, ValueError, OverflowError):
            continue  # it responded just now; `targets` lists those that do not
    if not skews:
        return
    target, most = max(skews.items(), key=lambda item: item[1])
    finding = f"the exporters' clocks and ours are {most:.0f} s apart at most"
    if most <= SKEW.total_seconds():
        yield CheckRow("clock", "ok", finding)
    else:
        yield CheckRow("clock", "bad", f"{finding} ({target})", "synchronise both with NTP")
