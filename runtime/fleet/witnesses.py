"""What else a site would know: pods' CPU and network, requests served, notebooks' kernels."""

import numpy as np

from fallow.tables import Batch
from runtime.fleet.behaviour import Floats, Marks
from runtime.fleet.plan import Fleet, Pod
from runtime.fleet.signals import Signals

IDLE_CORES = 0.01
CORES = 8.0


def batches(fleet: Fleet, signals: Signals, cluster: str, seed: int) -> list[Batch]:
    """Return rows of `pod_sample` and `notebook_sample` over all ticks in which a pod runs."""
    spans = [_span(pod, len(signals.ticks)) for pod in fleet.pods]
    return [
        _pod_samples(fleet, signals, cluster, spans, seed),
        _notebooks(fleet, signals, cluster, spans),
    ]


def _span(pod: Pod, n: int) -> slice:
    return slice(round(pod.begin * n), round(pod.end * n))


def _active(fleet: Fleet, signals: Signals) -> Marks:
    """Return per pod and tick whether any of its devices works."""
    out = np.zeros((len(fleet.pods), len(signals.ticks)), bool)
    busy = signals.columns["DCGM_FI_DEV_GPU_UTIL"] > 0
    for number in range(len(fleet.pods)):
        out[number] = ((signals.holder == number) & busy).any(axis=0)
    return out


def _moments(signals: Signals, span: slice) -> "np.ndarray[tuple[int], np.dtype[np.datetime64]]":
    return (signals.ticks[span] * 1e6).astype("datetime64[us]")


def _pod_samples(
    fleet: Fleet, signals: Signals, cluster: str, spans: list[slice], seed: int
) -> Batch:
    rng = np.random.default_rng([seed, 2])
    active = _active(fleet, signals)
    columns: dict[str, list[Floats]] = {"cpu_cores": [], "net_rx_bps": [], "requests_per_s": []}
    sizes = [len(signals.ticks[span]) for span in spans]
    for number, (pod, span, size) in enumerate(zip(fleet.pods, spans, sizes, strict=True)):
        works = active[number, span]
        columns["cpu_cores"].append(np.where(works, rng.uniform(0.3, 0.8, size) * CORES,
                                             rng.uniform(0, IDLE_CORES, size)))  # fmt: skip
        columns["net_rx_bps"].append(np.where(works, 4e6, 600.0))
        served = signals.requests.get(pod.uid)
        columns["requests_per_s"].append(np.full(size, np.nan) if served is None else served[span])
    joined = {name: np.concatenate(parts) for name, parts in columns.items()}
    names = _names(fleet, signals, cluster, spans, list(range(len(fleet.pods))))
    return Batch.of(
        "pod_sample",
        {
            **names,
            # Rates are of the time before the look, as a Prometheus tells them.
            "ts": np.asarray(names["ts"]) + np.timedelta64(round(signals.interval_s), "s"),
            "interval_s": np.full(sum(sizes), signals.interval_s),
            **joined,
            "net_tx_bps": joined["net_rx_bps"] * 0.5,
            "memory_bytes": np.full(sum(sizes), 20 * 2**30),
        },
    )


def _notebooks(fleet: Fleet, signals: Signals, cluster: str, spans: list[slice]) -> Batch:
    chosen = [n for n, pod in enumerate(fleet.pods) if pod.uid in signals.kernel_busy]
    last: list[Floats] = []
    busy: list[Marks] = []
    for number in chosen:
        marks = signals.kernel_busy[fleet.pods[number].uid][spans[number]]
        ticks = signals.ticks[spans[number]]
        # Last activity: the end of the latest busy tick so far, else the start of the pod's time.
        seen = np.where(marks, ticks + signals.interval_s, ticks[:1])
        last.append(np.minimum(np.maximum.accumulate(seen), ticks))
        busy.append(marks)
    size = sum(len(marks) for marks in busy)
    moments = (np.concatenate(last or [np.zeros(0)]) * 1e6).astype("datetime64[us]")
    return Batch.of(
        "notebook_sample",
        {
            **_names(fleet, signals, cluster, spans, chosen),
            "kernels": np.ones(size, np.int32),
            "busy_kernels": np.concatenate(busy or [np.zeros(0, bool)]).astype(np.int32),
            "last_kernel_activity": moments,
            "last_activity": moments,
            "terminals": np.zeros(size, np.int32),
            "connections": np.zeros(size, np.int32),
        },
    )


def _names(
    fleet: Fleet, signals: Signals, cluster: str, spans: list[slice], chosen: list[int]
) -> dict[str, object]:
    sizes = [len(signals.ticks[spans[n]]) for n in chosen]
    empty = np.zeros(0, "datetime64[us]")
    return {
        "cluster": [cluster] * sum(sizes),
        "ts": np.concatenate([_moments(signals, spans[n]) for n in chosen] or [empty]),
        "namespace": np.repeat([fleet.pods[n].namespace for n in chosen], sizes).tolist(),
        "pod": np.repeat([fleet.pods[n].name for n in chosen], sizes).tolist(),
    }
