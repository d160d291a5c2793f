"""Measure how much the ranks of jobs communicate: over the network, and over GPU links."""

import json
from datetime import timedelta

from analyzers.queries import load_sql
from analyzers.topology.gangs import PlacedGang, convert_to_us
from fallow.protocols import Views
from fallow.window import Window

HOST_DAYS = 2
GIGA = 1e9


def read_traffic(
    views: Views, window: Window, gangs: list[PlacedGang]
) -> dict[int, dict[str, float | None]]:
    """Return bytes per second.

    Network traffic is per pod (the last days), link traffic is per device.
    """
    traffic: dict[int, dict[str, float | None]] = {
        gang.number: {"net_bps": None, "pcie_bps": None, "nvlink_bps": None} for gang in gangs
    }
    if not gangs:
        return traffic
    devices = [
        {
            "gang": gang.number, "cluster": row["cluster"], "device": device,
            "since": convert_to_us(row["started_at"]), "until": convert_to_us(row["until"]),
        }
        for gang in gangs for row in gang.rows for device in row["devices"]
    ]  # fmt: skip
    bounds = {"since": window.start, "until": window.end}
    links = views.query(load_sql("topology/links"), {**bounds, "devices": json.dumps(devices)})
    for row in links.to_pylist():
        traffic[row["gang"]] |= {n: row[n] for n in ("pcie_bps", "nvlink_bps")}
    of_pod = {
        (row["cluster"], row["namespace"], pod): gang.number
        for gang in gangs for row in gang.rows for pod in row["pods"]
    }  # fmt: skip
    names = [dict(zip(("cluster", "namespace", "pod"), key, strict=True)) for key in of_pod]
    since = max(window.start, window.end - timedelta(days=HOST_DAYS))
    heard: dict[int, list[float]] = {}
    hosts = {"since": since, "until": window.end, "pods": json.dumps(names)}
    for row in views.query(load_sql("pod_use"), hosts).to_pylist():
        if row["net_bps"] is not None:
            number = of_pod[row["cluster"], row["namespace"], row["pod"]]
            heard.setdefault(number, []).append(row["net_bps"])
    for number, rates in heard.items():
        traffic[number]["net_bps"] = sum(rates) / len(rates)
    return traffic
