"""Check what a Prometheus has for Fallow: one row per check, with the next step.

    diagnose(client, now) -> [Row(check, status, finding, next_step)]

The checks need only label names and metric names, so every query is about now and small.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Literal

import msgspec

from collectors.prometheus.client import SKEW, PrometheusClient
from collectors.prometheus.clusters import find_cluster, find_mixture
from collectors.prometheus.decode import decode_vector
from collectors.prometheus.raw import build_selector
from collectors.prometheus.telemetry import list_metric_names
from collectors.series import find_node, list_labels_of, measure_of, resolve
from fallow.errors import UNREADABLE_JSON, SourceError
from fallow.resources import read_table
from fallow.window import Window, format_duration

Status = Literal["ok", "warn", "bad", "away", "off"]
"""A larger difference between two clocks puts samples into the wrong bucket.

Source: telemetry-and-waste.md#idle.
"""
SLOW = timedelta(seconds=60)
COUNTED_S = 600
"""The time in which a series' samples are counted to estimate its interval."""
INTERVALS_S = (5, 10, 15, 20, 30, 60, 120, 180, 300)
"""Intervals that people configure."""
"""Samples with a longer interval miss bursts; the energy counter still shows them."""
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


class CheckRow(msgspec.Struct, frozen=True):
    """One check: `ok`, `warn` (works less well) or `bad` (something cannot work), and what to do.

    `away`: no answer now; a later attempt may succeed. `off`: not configured.
    """

    check: str
    status: Status
    finding: str
    next_step: str = ""


class MetricSurvey(msgspec.Struct, frozen=True):
    """Metric names by column, the series of one signal, and all names."""

    columns: Mapping[str, tuple[str, ...]]
    series: Sequence[Mapping[str, str]]
    signal_name: str
    names: frozenset[str]


def diagnose(
    client: PrometheusClient,
    now: datetime,
    *,
    matchers: str = "",
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> list[CheckRow]:
    """Return what is there and what is missing at the time `now`.

    Raises:
        FallowError: the server cannot be queried at all (see `PrometheusClient.get`).
    """
    doctor = _Doctor(client, now, matchers)
    rows = [doctor.server(), doctor.skew(clock)]
    survey = doctor.survey()
    if not survey.series:
        vendors = "dcgm-exporter, HAMi, AMD's or Ascend's exporter"
        finding = "no GPU series in the last 5 minutes"
        rows.append(CheckRow("telemetry", "bad", finding, f"let Prometheus scrape {vendors}"))
        return [*rows, doctor.kube_state(survey), doctor.reach(survey)]
    rows += check_clusters(survey)
    rows += [check_exporters(survey), label_style(survey), check_nodes(survey), check_mig(survey)]
    rows += doctor.signals(survey)
    rows += [doctor.interval(survey), doctor.conflicts(survey), doctor.up(survey)]
    rows += [
        doctor.silent_nodes(survey),
        doctor.kube_state(survey),
        check_owners(survey),
        doctor.host(survey),
    ]
    return [*rows, doctor.reach(survey)]


def read_flavour(build: Mapping[str, Any]) -> str:
    """Return the server's product by its build information.

    Mimir names itself and Prometheus gives its revision. VictoriaMetrics gives only the version of
    Prometheus that it is compatible with.
    """
    version = build.get("version")
    if not version:
        return "the query API (no build information)"
    if build.get("application"):
        return f"{build['application']} {version}"
    if "revision" in build or "goVersion" in build:
        return f"Prometheus {version}, or what is built on it"
    return f"VictoriaMetrics or another that stands in for Prometheus {version}"


def check_exporters(survey: MetricSurvey) -> CheckRow:
    """Return which exporters, and which generations of metric names, there are."""
    vendors: dict[str, list[str]] = {}
    for names_found in survey.columns.values():
        for name in names_found:
            measure = measure_of(name)
            vendors.setdefault(measure.vendor if measure else "other", []).append(name)
    parts = []
    for vendor, spelled in sorted(vendors.items()):
        text = f"{_GENERATION.get(vendor, vendor)} ({len(spelled)} metrics)"
        if vendor == "nvidia":
            new = sum(name.endswith(("_UTIL_RATIO", "_WATTS", "_CELSIUS")) for name in spelled)
            text += ", DCGM 4.6 names" if new else ", classic names"
            old = any(
                "uuid" in label_set and "UUID" not in label_set for label_set in survey.series
            )
            text += ", --use-old-namespace" if old else ""
        parts.append(text)
    return CheckRow("exporters", "ok", "; ".join(parts))


def label_style(survey: MetricSurvey) -> CheckRow:
    """Return whether the workload is in `pod` or `exported_pod`, and how many series name one."""
    total = len(survey.series)
    renamed = sum("exported_pod" in w or "exported_namespace" in w for w in survey.series)
    named = sum(
        s is not None and s.pod is not None
        for s in (resolve(survey.signal_name, w) for w in survey.series)
    )
    style = "pod, namespace, container (honorLabels: true)"
    if renamed:
        style = "exported_pod, exported_namespace, exported_container (honorLabels: false)"
        style += "" if renamed == total else f" on {renamed} of {total} series, plain on the rest"
    finding = f"workloads are in {style}; {named} of {total} series name a pod"
    if named:
        return CheckRow("labels", "ok", finding)
    step = "run dcgm-exporter with --kubernetes=true (DCGM_EXPORTER_KUBERNETES)"
    return CheckRow("labels", "warn", finding, step)


def check_nodes(survey: MetricSurvey) -> CheckRow:
    """Return which label names the node."""
    used = Counter(
        next((n for n in list_labels_of("node") if w.get(n)), "instance") for w in survey.series
    )
    exporter_pods = sum(
        bool(w.get("Hostname") or w.get("hostname"))
        and find_node(w) not in {w.get("Hostname"), w.get("hostname"), w.get("node")}
        for w in survey.series
    )
    text = ", ".join(f"{label} on {count}" for label, count in used.most_common())
    finding = (
        f"{len({find_node(w) for w in survey.series})} nodes; the node's name is in {text} series"
    )
    if exporter_pods:
        step = "set NODE_NAME from spec.nodeName in dcgm-exporter, or relabel `node` on"
        return CheckRow(
            "nodes", "warn", f"{finding}; some host names are the exporter's own pods", step
        )
    return CheckRow("nodes", "ok", finding)


def check_mig(survey: MetricSurvey) -> CheckRow:
    """Return whether there are MIG instances."""
    profiles = Counter(w["GPU_I_PROFILE"] for w in survey.series if w.get("GPU_I_PROFILE"))
    if not profiles:
        return CheckRow("mig", "ok", "no MIG instances")
    text = ", ".join(f"{count} x {profile}" for profile, count in sorted(profiles.items()))
    return CheckRow("mig", "ok", f"MIG instances: {text}; each is judged by itself")


def check_owners(survey: MetricSurvey) -> CheckRow:
    """Return whether pods lead to their owners."""
    missing = sorted({"kube_pod_owner", "kube_replicaset_owner", "kube_job_owner"} - survey.names)
    if not missing:
        return CheckRow("owners", "ok", "pods, ReplicaSets and Jobs name their owners")
    step = "allow these metrics in kube-state-metrics, or give Fallow API access"
    return CheckRow("owners", "warn", f"no {', '.join(missing)}: some owners stay unknown", step)


def check_clusters(survey: MetricSurvey) -> Iterator[CheckRow]:
    """Yield a row where the series are of several clusters."""
    if error := find_mixture(survey.series):
        yield CheckRow("clusters", "bad", error.message, error.hint or "")


class _Doctor:
    def __init__(self, client: PrometheusClient, now: datetime, matchers: str) -> None:
        self._client = client
        self._now = now
        self._matchers = matchers

    def _query(
        self, expression: str, at: datetime | None = None
    ) -> list[tuple[dict[str, str], float]]:
        return decode_vector(self._client.query(expression, at or self._now))

    def _select(self, *names: str) -> str:
        return build_selector(names, self._matchers)

    def server(self) -> CheckRow:
        self._query("vector(1)")
        try:
            body = self._client.get("status/buildinfo", {})
            server_name = read_flavour(msgspec.json.decode(body)["data"])
        except (SourceError, KeyError, AttributeError, TypeError, *UNREADABLE_JSON):
            server_name = read_flavour({})
        return CheckRow("server", "ok", f"{self._client.url} answers: {server_name}")

    def skew(self, clock: Callable[[], datetime]) -> CheckRow:
        body = self._client.get("query", {"query": "time()"})
        try:
            answer = msgspec.json.decode(body)["data"]["result"]
        except (KeyError, TypeError, *UNREADABLE_JSON):
            answer = None
        if not isinstance(answer, list) or not answer or not isinstance(answer[0], (int, float)):
            return CheckRow("clock", "warn", "the server does not say its time")
        apart = abs(float(answer[0]) - clock().timestamp())
        finding = f"the server's clock and ours are {apart:.0f} s apart"
        if apart <= SKEW.total_seconds():
            return CheckRow("clock", "ok", finding)
        return CheckRow("clock", "bad", finding, "synchronise both with NTP")

    def survey(self) -> MetricSurvey:
        names = list_metric_names(self._client, Window.last(timedelta(hours=1), now=self._now))
        columns: dict[str, list[str]] = {}
        for name in names:
            measure = measure_of(name)
            if measure is not None and measure.table == "sample":
                columns.setdefault(measure.column, []).append(name)
        best: list[dict[str, str]] = []
        best_name = ""
        for column in ("mem_used_bytes", "power_w", "gr_engine_active", "gpu_util_pct"):
            for name in columns.get(column, ()):
                series_found = [label_set for label_set, _ in self._query(self._select(name))]
                if len(series_found) > len(best):
                    best, best_name = series_found, name
        return MetricSurvey(
            {k: tuple(sorted(v)) for k, v in columns.items()}, best, best_name, frozenset(names)
        )

    def signals(self, survey: MetricSurvey) -> Iterator[CheckRow]:
        """Yield one row per model: which of the needed fields are there."""
        by = ", ".join(list_labels_of("model"))
        total = Counter(_get_model(label_set) for label_set in survey.series)
        there: dict[str, Counter[str]] = {}
        legal: dict[str, Counter[str]] = {}
        for field in list_fields():
            column = field["column"]
            for name in survey.columns.get(column, ()):
                selected = self._select(name)
                for into, some in (
                    (there, selected),
                    (legal, f"{selected} <= {_find_highest(name):g}"),
                ):
                    for label_set, count in self._query(f"count by ({by}) ({some})"):
                        into.setdefault(_get_model(label_set), Counter())[column] += round(count)
        for model, devices in sorted(total.items()):
            legal_counts = legal.get(model, Counter())
            blank = [c for c in there.get(model, ()) if not legal_counts[c]]
            instances = any(w.get("GPU_I_ID") for w in survey.series if _get_model(w) == model)
            fields_wanted = [
                f for f in list_fields() if not (instances and f["column"] == "gpu_util_pct")
            ]
            missing = [
                f
                for f in fields_wanted
                if not legal_counts[f["column"]] and f["column"] not in blank
            ]
            yield check_signal(model, devices, legal_counts, missing, blank)

    def interval(self, survey: MetricSurvey) -> CheckRow:
        counts_found = self._query(f"max(count_over_time({self._select(survey.signal_name)}[10m]))")
        seconds = _estimate_interval(counts_found[0][1]) if counts_found else 600.0
        finding = f"a scrape every {format_duration(seconds)}"
        if seconds <= SLOW.total_seconds() * 1.1:
            return CheckRow("interval", "ok", finding)
        step = "scrape every 30s; above 60s short bursts are seen only by the energy counter"
        return CheckRow("interval", "warn", finding, step)

    def conflicts(self, survey: MetricSurvey) -> CheckRow:
        util, engine = (survey.columns.get(c, ()) for c in ("gpu_util_pct", "gr_engine_active"))
        if not util or not engine:
            return CheckRow("conflicts", "ok", "only one compute signal: nothing to compare")
        on = "on (UUID, uuid, device_uuid, gpu_uuid)"
        expression = (
            f"count(({self._select(*util)} >= 10) and {on} ({self._select(*engine)} <= 0.01))"
        )
        rows_found = self._query(expression)
        count = round(rows_found[0][1]) if rows_found else 0
        if not count:
            return CheckRow("conflicts", "ok", "profiling and GPU_UTIL agree")
        finding = (
            f"{_count_phrase(count, 'GPU')}: profiling says 0 while GPU_UTIL says 10 % or more"
        )
        step = (
            "restart dcgm-exporter there (an XID 31 may have stopped profiling); until then unknown"
        )
        return CheckRow("conflicts", "warn", finding, step)

    def up(self, survey: MetricSurvey) -> CheckRow:
        jobs = sorted({w["job"] for w in survey.series if w.get("job")})
        if not jobs or "up" not in survey.names:
            return CheckRow("exporters up", "warn", "no `up` series for the exporters' jobs")
        matchers = ", ".join(p for p in (f'job=~"{"|".join(jobs)}"', self._matchers) if p)
        targets = self._query(f"up{{{matchers}}}")
        if not targets:
            return CheckRow("exporters up", "warn", "no `up` series for the exporters' jobs")
        down = [label_set for label_set, value in targets if not value]
        if not down:
            return CheckRow("exporters up", "ok", f"every target of {', '.join(jobs)} is up")
        names = sorted(
            _name_within(find_cluster(w), find_node(w) or w.get("instance", "?")) for w in down
        )
        step = "check these exporters' pods and Prometheus' targets page"
        finding = f"{_count_phrase(len(names), 'exporter')} down: {format_few(names)}"
        return CheckRow("exporters up", "bad", finding, step)

    def silent_nodes(self, survey: MetricSurvey) -> CheckRow:
        if "kube_node_status_capacity" not in survey.names:
            return CheckRow("silent nodes", "ok", "not known: no kube_node_status_capacity")
        resource_matcher = 'resource=~"(nvidia|amd|huawei)_com_.*"'
        matchers = ", ".join(p for p in (resource_matcher, self._matchers) if p)
        capacities = self._query(f"kube_node_status_capacity{{{matchers}}} > 0")
        nodes_with_series = {(find_cluster(w), find_node(w)) for w in survey.series}
        with_gpus = {
            (find_cluster(w), w.get("exported_node") or w.get("node", "")) for w, _ in capacities
        }
        silent = [_name_within(*node) for node in sorted(with_gpus - nodes_with_series)]
        if not silent:
            finding = f"all {len(with_gpus)} nodes with GPUs have telemetry"
            return CheckRow("silent nodes", "ok", finding)
        step = "is the exporter's DaemonSet on these nodes (taints, selectors)?"
        finding = (
            f"{_count_phrase(len(silent), 'node')} with GPUs but no telemetry: {format_few(silent)}"
        )
        return CheckRow("silent nodes", "bad", finding, step)

    def kube_state(self, survey: MetricSurvey) -> CheckRow:
        if "kube_pod_info" not in survey.names:
            step = "install kube-state-metrics, or set kubernetes.enabled for API access"
            return CheckRow(
                "inventory", "warn", "no kube-state-metrics: owners and teams unknown", step
            )
        sample = self._query(f"topk(1, {self._select('kube_pod_info')})")
        renamed = any("exported_pod" in label_set for label_set, _ in sample)
        style = "exported_pod (honorLabels: false)" if renamed else "pod (honorLabels: true)"
        labelled = [
            label_set
            for label_set, _ in (
                self._query(f"topk(50, {self._select('kube_pod_labels')})")
                if "kube_pod_labels" in survey.names
                else []
            )
        ]
        if any(k.startswith("label_") for label_set in labelled for k in label_set):
            return CheckRow("inventory", "ok", f"kube-state-metrics, its labels in {style}")
        step = "start kube-state-metrics with --metric-labels-allowlist=pods=[team],nodes=[*]"
        finding = f"kube-state-metrics, its labels in {style}; it shows no pod labels: no teams"
        return CheckRow("inventory", "warn", finding, step)

    def host(self, survey: MetricSurvey) -> CheckRow:
        """Return whether there is a signal from the host that names containers."""
        name = "container_cpu_usage_seconds_total"
        if name not in survey.names:
            step = "scrape the kubelets' /metrics/cadvisor"
            finding = "no cAdvisor series: idleness has no signal from the host"
            return CheckRow("host", "warn", finding, step)
        matchers = ", ".join(p for p in ('container!=""', self._matchers) if p)
        named = self._query(f"count({build_selector([name], matchers)})")
        if not named or not named[0][1]:
            matchers = ", ".join(p for p in ('pod!=""', self._matchers) if p)
            if self._query(f"count({build_selector([name], matchers)})"):
                finding = "cAdvisor's series name no container: a sidecar's work is its pod's"
            else:
                finding = "cAdvisor's series name no pod: idleness has no signal from the host"
            step = "a runtime behind cri-dockerd hides them from cAdvisor: use containerd or CRI-O"
            return CheckRow("host", "warn", finding, step)
        finding = "cAdvisor's CPU, memory and network are there: a second signal"
        return CheckRow("host", "ok", finding)

    def reach(self, survey: MetricSurvey) -> CheckRow:
        signal_name = survey.signal_name or "up"
        reached = timedelta()
        for lookback in REACHES:
            if not self._query(f"count({self._select(signal_name)})", self._now - lookback):
                break
            reached = lookback
        if not reached:
            finding = "less than a day of GPU series"
            return CheckRow("history", "warn", finding, "longer history: a later scan sees more")
        days = f"{reached.days} day" + ("s" if reached.days > 1 else "")
        return CheckRow("history", "ok", f"GPU series reach back {days} or more")


def _name_within(cluster: str, name: str) -> str:
    return f"{name} of {cluster}" if cluster else name


def check_signal(
    model: str,
    devices: int,
    device_counts: Counter[str],
    missing: Sequence[Mapping[str, str]],
    blank: Sequence[str],
) -> CheckRow:
    """Return which needed fields a model's devices have, and which line adds the missing ones."""
    check = f"signals of {model}"
    names = [f["column"] for f in list_fields() if device_counts[f["column"]]]
    finding = f"{devices} devices with {', '.join(names) or 'nothing we know'}"
    if not missing and not blank:
        return CheckRow(check, "ok", finding)
    compute = {"gr_engine_active", "gpu_util_pct", "sm_active"} & set(names)
    steps = []
    if missing:
        finding += f"; without {', '.join(f['column'] for f in missing)}"
        steps.append(_AGENT_CSV + " | ".join(f["line"] for f in missing))
    if blank:
        finding += f"; only DCGM's blanks in {', '.join(blank)}"
        steps.append(_BLANK)
    return CheckRow(check, "warn" if compute else "bad", finding, "; ".join(steps))


def _estimate_interval(samples: float) -> float:
    """Return the interval of so many samples in `COUNTED_S`: the first or last may lie outside."""
    shortest, longest = COUNTED_S / (samples + 1), COUNTED_S / max(samples - 1, 1)
    usual = [seconds for seconds in INTERVALS_S if shortest <= seconds <= longest]
    estimate = COUNTED_S / max(samples, 1)
    return min(usual, key=lambda seconds: abs(seconds - estimate), default=estimate)


def _find_highest(name: str) -> float:
    """Return the largest legal value of a metric as it is exported."""
    measure = measure_of(name)
    return measure.high / measure.scale if measure is not None else float("inf")


@cache
def list_fields() -> tuple[dict[str, str], ...]:
    """Return the needed fields: the column, dcgm-exporter's line, and why."""
    return tuple(read_table("collectors", "dcgm_fields.csv"))


def _get_model(label_set: Mapping[str, str]) -> str:
    return next(
        (label_set[n] for n in list_labels_of("model") if label_set.get(n)), "unnamed model"
    )


def _count_phrase(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def format_few(names: Sequence[str], most: int = 5) -> str:
    """Return the first names and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
