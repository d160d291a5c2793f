"""What a Prometheus has for us, in sentences: one row per check, and what to do about it.

    diagnose(client, now) -> [Row(check, status, finding, next_step)]

Findings follow from label names and metric names, so every query is about now and small.
"""

import csv
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import vector
from collectors.prometheus.raw import selector
from collectors.prometheus.telemetry import metric_names
from collectors.series import labels_meaning, measure_of, node_of, resolve
from fallow.errors import SourceError
from fallow.window import Window, format_duration

Status = Literal["ok", "warn", "bad", "away", "off"]
SKEW = timedelta(seconds=30)
"""Clocks further apart than this put looks on the wrong side of a bucket.

Source: telemetry-and-waste.md#idle.
"""
SLOW = timedelta(seconds=60)
"""Looks rarer than this miss bursts; the energy counter still sees them."""
REACHES = tuple(timedelta(days=d) for d in (1, 2, 7, 14, 30, 60, 90))
_AGENT_CSV = "add to dcgm-exporter's counters CSV: "
_BLANK = (
    "blank: not supported on this model, not permitted (SYS_ADMIN), or another profiler holds it"
)
_GENERATION = {
    "nvidia": "dcgm-exporter",
    "hami": "HAMi",
    "amd": "AMD device metrics exporter",
    "ascend": "Ascend npu-exporter",
}


class Row(msgspec.Struct, frozen=True):
    """One check: `ok`, `warn` (works, less well) or `bad` (something cannot work); and what to do.

    `away`: it does not answer now, which may pass. `off`: nobody wants it.
    """

    check: str
    status: Status
    finding: str
    next_step: str = ""


class Seen(msgspec.Struct, frozen=True):
    """What was asked: metric names by column, one witness's series, and all names."""

    columns: Mapping[str, tuple[str, ...]]
    series: Sequence[Mapping[str, str]]
    witness: str
    names: frozenset[str]


def diagnose(
    client: PrometheusClient,
    now: datetime,
    *,
    matchers: str = "",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[Row]:
    """Return what is there and what is missing; `now` is the moment looked at.

    Raises:
        FallowError: the server cannot be asked at all (see `PrometheusClient.get`).
    """
    doctor = _Doctor(client, now, matchers)
    rows = [doctor.server(), doctor.skew(clock)]
    seen = doctor.look()
    if not seen.series:
        vendors = "dcgm-exporter, HAMi, AMD's or Ascend's exporter"
        finding = "no GPU series in the last 5 minutes"
        rows.append(Row("telemetry", "bad", finding, f"let Prometheus scrape {vendors}"))
        return [*rows, doctor.kube_state(seen), doctor.reach(seen)]
    rows += [exporters(seen), label_style(seen), nodes(seen), mig(seen)]
    rows += doctor.witnesses(seen)
    rows += [doctor.interval(seen), doctor.conflicts(seen), doctor.up(seen)]
    rows += [doctor.silent_nodes(seen), doctor.kube_state(seen), owners(seen), cadvisor(seen)]
    return [*rows, doctor.reach(seen)]


def flavour(build: Mapping[str, Any]) -> str:
    """Name the server by its build information: Mimir names itself, Prometheus its revision.

    VictoriaMetrics says only the version of Prometheus that it can stand in for.
    """
    version = build.get("version")
    if not version:
        return "the query API (no build information)"
    if build.get("application"):
        return f"{build['application']} {version}"
    if "revision" in build or "goVersion" in build:
        return f"Prometheus {version}, or what is built on it"
    return f"VictoriaMetrics or another that stands in for Prometheus {version}"


def exporters(seen: Seen) -> Row:
    """Say which exporters and generations of names there are."""
    vendors: dict[str, list[str]] = {}
    for found in seen.columns.values():
        for name in found:
            measure = measure_of(name)
            vendors.setdefault(measure.vendor if measure else "other", []).append(name)
    parts = []
    for vendor, spelled in sorted(vendors.items()):
        text = f"{_GENERATION.get(vendor, vendor)} ({len(spelled)} metrics)"
        if vendor == "nvidia":
            new = sum(name.endswith(("_UTIL_RATIO", "_WATTS", "_CELSIUS")) for name in spelled)
            text += ", DCGM 4.6 names" if new else ", classic names"
            old = any("uuid" in words and "UUID" not in words for words in seen.series)
            text += ", --use-old-namespace" if old else ""
        parts.append(text)
    return Row("exporters", "ok", "; ".join(parts))


def label_style(seen: Seen) -> Row:
    """Say whether the workload stands in `pod` or `exported_pod`, and how many series name one."""
    total = len(seen.series)
    renamed = sum("exported_pod" in w or "exported_namespace" in w for w in seen.series)
    named = sum(
        s is not None and s.pod is not None for s in (resolve(seen.witness, w) for w in seen.series)
    )
    style = "pod, namespace, container (honorLabels: true)"
    if renamed:
        style = "exported_pod, exported_namespace, exported_container (honorLabels: false)"
        style += "" if renamed == total else f" on {renamed} of {total} series, plain on the rest"
    finding = f"workloads are in {style}; {named} of {total} series name a pod"
    if named:
        return Row("labels", "ok", finding)
    step = "run dcgm-exporter with --kubernetes=true (DCGM_EXPORTER_KUBERNETES)"
    return Row("labels", "warn", finding, step)


def nodes(seen: Seen) -> Row:
    """Say which label names the node."""
    used = Counter(
        next((n for n in labels_meaning("node") if w.get(n)), "instance") for w in seen.series
    )
    exporter_pods = sum(
        bool(w.get("Hostname") or w.get("hostname"))
        and node_of(w) not in {w.get("Hostname"), w.get("hostname"), w.get("node")}
        for w in seen.series
    )
    text = ", ".join(f"{label} on {count}" for label, count in used.most_common())
    finding = f"{len({node_of(w) for w in seen.series})} nodes; the node's name is in {text} series"
    if exporter_pods:
        step = "set NODE_NAME from spec.nodeName in dcgm-exporter, or relabel `node` on"
        return Row("nodes", "warn", f"{finding}; some host names are the exporter's own pods", step)
    return Row("nodes", "ok", finding)


def mig(seen: Seen) -> Row:
    """Say whether there are MIG instances."""
    found = Counter(w["GPU_I_PROFILE"] for w in seen.series if w.get("GPU_I_PROFILE"))
    if not found:
        return Row("mig", "ok", "no MIG instances")
    text = ", ".join(f"{count} x {profile}" for profile, count in sorted(found.items()))
    return Row("mig", "ok", f"MIG instances: {text}; each is judged by itself")


def owners(seen: Seen) -> Row:
    """Say whether pods lead to their owners."""
    missing = sorted({"kube_pod_owner", "kube_replicaset_owner", "kube_job_owner"} - seen.names)
    if not missing:
        return Row("owners", "ok", "pods, ReplicaSets and Jobs name their owners")
    step = "allow these metrics in kube-state-metrics, or give Fallow API access"
    return Row("owners", "warn", f"no {', '.join(missing)}: some owners stay unknown", step)


def cadvisor(seen: Seen) -> Row:
    """Say whether there is a host witness."""
    if "container_cpu_usage_seconds_total" in seen.names:
        return Row("host", "ok", "cAdvisor's CPU, memory and network are there: a second witness")
    step = "scrape the kubelets' /metrics/cadvisor"
    return Row("host", "warn", "no cAdvisor series: idleness has no witness on the host", step)


class _Doctor:
    def __init__(self, client: PrometheusClient, now: datetime, matchers: str) -> None:
        self._client = client
        self._now = now
        self._matchers = matchers

    def _ask(
        self, expression: str, at: datetime | None = None
    ) -> list[tuple[dict[str, str], float]]:
        return vector(self._client.query(expression, at or self._now))

    def _select(self, *names: str) -> str:
        return selector(names, self._matchers)

    def server(self) -> Row:
        self._ask("vector(1)")
        try:
            body = self._client.get("status/buildinfo", {})
            what = flavour(msgspec.json.decode(body)["data"])
        except (SourceError, KeyError, AttributeError, TypeError):
            what = flavour({})
        return Row("server", "ok", f"{self._client.url} answers: {what}")

    def skew(self, clock: Callable[[], datetime]) -> Row:
        body = self._client.get("query", {"query": "time()"})
        answer = msgspec.json.decode(body)["data"]["result"]
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], (int, float)):
            return Row("clock", "warn", "the server does not say its time")
        apart = abs(float(answer[0]) - clock().timestamp())
        finding = f"the server's clock and ours are {apart:.0f} s apart"
        if apart <= SKEW.total_seconds():
            return Row("clock", "ok", finding)
        return Row("clock", "bad", finding, "synchronise both with NTP")

    def look(self) -> Seen:
        names = metric_names(self._client, Window.last(timedelta(hours=1), now=self._now))
        columns: dict[str, list[str]] = {}
        for name in names:
            measure = measure_of(name)
            if measure is not None and measure.table == "sample":
                columns.setdefault(measure.column, []).append(name)
        best: list[dict[str, str]] = []
        witness = ""
        for column in ("mem_used_bytes", "power_w", "gr_engine_active", "gpu_util_pct"):
            for name in columns.get(column, ()):
                found = [words for words, _ in self._ask(self._select(name))]
                if len(found) > len(best):
                    best, witness = found, name
        return Seen(
            {k: tuple(sorted(v)) for k, v in columns.items()}, best, witness, frozenset(names)
        )

    def witnesses(self, seen: Seen) -> Iterator[Row]:
        """Yield one row per model: which of the fields that matter are there."""
        by = ", ".join(labels_meaning("model"))
        total = Counter(_model(words) for words in seen.series)
        there: dict[str, Counter[str]] = {}
        legal: dict[str, Counter[str]] = {}
        for field in fields():
            column = field["column"]
            for name in seen.columns.get(column, ()):
                what = self._select(name)
                for into, some in ((there, what), (legal, f"{what} <= {_highest(name):g}")):
                    for words, count in self._ask(f"count by ({by}) ({some})"):
                        into.setdefault(_model(words), Counter())[column] += round(count)
        for model, devices in sorted(total.items()):
            have = legal.get(model, Counter())
            blank = [c for c in there.get(model, ()) if not have[c]]
            instances = any(w.get("GPU_I_ID") for w in seen.series if _model(w) == model)
            wanted = [f for f in fields() if not (instances and f["column"] == "gpu_util_pct")]
            missing = [f for f in wanted if not have[f["column"]] and f["column"] not in blank]
            yield witness_row(model, devices, have, missing, blank)

    def interval(self, seen: Seen) -> Row:
        found = self._ask(f"max(count_over_time({self._select(seen.witness)}[10m]))")
        seconds = 600 / max(found[0][1], 1) if found else 600.0
        finding = f"a look every {format_duration(seconds)}"
        if seconds <= SLOW.total_seconds() * 1.1:
            return Row("interval", "ok", finding)
        step = "scrape every 30s; above 60s short bursts are seen only by the energy counter"
        return Row("interval", "warn", finding, step)

    def conflicts(self, seen: Seen) -> Row:
        util, engine = (seen.columns.get(c, ()) for c in ("gpu_util_pct", "gr_engine_active"))
        if not util or not engine:
            return Row("conflicts", "ok", "only one compute witness: nothing to compare")
        on = "on (UUID, uuid, device_uuid, gpu_uuid)"
        asked = f"count(({self._select(*util)} >= 10) and {on} ({self._select(*engine)} <= 0.01))"
        found = self._ask(asked)
        count = round(found[0][1]) if found else 0
        if not count:
            return Row("conflicts", "ok", "profiling and GPU_UTIL agree")
        finding = f"{_counted(count, 'GPU')}: profiling says 0 while GPU_UTIL says 10 % or more"
        step = (
            "restart dcgm-exporter there (an XID 31 may have stopped profiling); until then unknown"
        )
        return Row("conflicts", "warn", finding, step)

    def up(self, seen: Seen) -> Row:
        jobs = sorted({w["job"] for w in seen.series if w.get("job")})
        if not jobs or "up" not in seen.names:
            return Row("exporters up", "warn", "no `up` series for the exporters' jobs")
        matchers = ", ".join(p for p in (f'job=~"{"|".join(jobs)}"', self._matchers) if p)
        down = [words for words, _ in self._ask(f"up{{{matchers}}} == 0")]
        if not down:
            return Row("exporters up", "ok", f"every target of {', '.join(jobs)} is up")
        names = sorted(node_of(words) or words.get("instance", "?") for words in down)
        step = "look at these exporters' pods and at Prometheus' targets page"
        finding = f"{_counted(len(names), 'exporter')} down: {few(names)}"
        return Row("exporters up", "bad", finding, step)

    def silent_nodes(self, seen: Seen) -> Row:
        if "kube_node_status_capacity" not in seen.names:
            return Row("silent nodes", "ok", "not known: no kube_node_status_capacity")
        what = 'resource=~"(nvidia|amd|huawei)_com_.*"'
        matchers = ", ".join(p for p in (what, self._matchers) if p)
        found = self._ask(f"kube_node_status_capacity{{{matchers}}} > 0")
        have = {node_of(words) for words in seen.series}
        with_gpus = {w.get("exported_node") or w.get("node", "") for w, _ in found}
        silent = sorted(with_gpus - have)
        if not silent:
            finding = f"all {len(with_gpus)} nodes with GPUs have telemetry"
            return Row("silent nodes", "ok", finding)
        step = "is the exporter's DaemonSet on these nodes (taints, selectors)?"
        finding = f"{_counted(len(silent), 'node')} with GPUs but no telemetry: {few(silent)}"
        return Row("silent nodes", "bad", finding, step)

    def kube_state(self, seen: Seen) -> Row:
        if "kube_pod_info" not in seen.names:
            step = "install kube-state-metrics, or set kubernetes.enabled for API access"
            return Row("inventory", "warn", "no kube-state-metrics: owners and teams unknown", step)
        sample = self._ask(f"topk(1, {self._select('kube_pod_info')})")
        renamed = any("exported_pod" in words for words, _ in sample)
        style = "exported_pod (honorLabels: false)" if renamed else "pod (honorLabels: true)"
        labelled = [
            words
            for words, _ in (
                self._ask(f"topk(50, {self._select('kube_pod_labels')})")
                if "kube_pod_labels" in seen.names
                else []
            )
        ]
        if any(k.startswith("label_") for words in labelled for k in words):
            return Row("inventory", "ok", f"kube-state-metrics, its labels in {style}")
        step = "start kube-state-metrics with --metric-labels-allowlist=pods=[team],nodes=[*]"
        finding = f"kube-state-metrics, its labels in {style}; it shows no pod labels: no teams"
        return Row("inventory", "warn", finding, step)

    def reach(self, seen: Seen) -> Row:
        witness = seen.witness or "up"
        reached = timedelta()
        for back in REACHES:
            if not self._ask(f"count({self._select(witness)})", self._now - back):
                break
            reached = back
        if not reached:
            finding = "less than a day of GPU series"
            return Row("history", "warn", finding, "longer history: a later scan sees more")
        days = f"{reached.days} day" + ("s" if reached.days > 1 else "")
        return Row("history", "ok", f"GPU series reach back {days} or more")


def witness_row(
    model: str,
    devices: int,
    have: Counter[str],
    missing: Sequence[Mapping[str, str]],
    blank: Sequence[str],
) -> Row:
    """Say which of the fields that matter a model's devices have, and which line adds the rest."""
    check = f"witnesses of {model}"
    names = [f["column"] for f in fields() if have[f["column"]]]
    finding = f"{devices} devices with {', '.join(names) or 'nothing we know'}"
    if not missing and not blank:
        return Row(check, "ok", finding)
    compute = {"gr_engine_active", "gpu_util_pct", "sm_active"} & set(names)
    steps = []
    if missing:
        finding += f"; without {', '.join(f['column'] for f in missing)}"
        steps.append(_AGENT_CSV + " | ".join(f["line"] for f in missing))
    if blank:
        finding += f"; only DCGM's blanks in {', '.join(blank)}"
        steps.append(_BLANK)
    return Row(check, "warn" if compute else "bad", finding, "; ".join(steps))


def _highest(name: str) -> float:
    """Return the largest legal value of a metric as it is exported."""
    measure = measure_of(name)
    return measure.high / measure.scale if measure is not None else float("inf")


@cache
def fields() -> tuple[dict[str, str], ...]:
    """Return the fields that matter: the column, dcgm-exporter's line, and why."""
    text = files("collectors").joinpath("dcgm_fields.csv").read_text(encoding="utf-8")
    return tuple(csv.DictReader(text.splitlines()))


def _model(words: Mapping[str, str]) -> str:
    return next((words[n] for n in labels_meaning("model") if words.get(n)), "unnamed model")


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def few(names: Sequence[str], most: int = 5) -> str:
    """Return the first names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
