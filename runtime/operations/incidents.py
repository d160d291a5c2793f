"""Read the incidents of a window as rows of a document: verdict, evidence, who suffered."""

from datetime import UTC
from typing import TYPE_CHECKING, Any

from analyzers.reliability.incidents.reading import read_incidents
from fallow.window import Window
from runtime.operations.analyzer_runs import load_analyzers

if TYPE_CHECKING:
    from datetime import datetime

    from analyzers.reliability.incidents.records import Incident, Signal
    from warehouse.lake import Warehouse

NOTE = "steps are advice: Fallow restarts and resets nothing"
"""Said with every list of incidents."""
STALLED = "stalled"


def list_incidents(
    warehouse: "Warehouse", window: Window, cluster: str | None = None
) -> list["Incident"]:
    """Return the incidents of a window, oldest first; `cluster` narrows them to one cluster."""
    settings = warehouse.settings
    stalls = load_analyzers(settings, [STALLED])[STALLED].find(warehouse, window)
    incidents = read_incidents(warehouse, window, settings.reliability, stalls)
    return [i for i in incidents if cluster is None or i.cluster == cluster]


def build_incident_row(incident: "Incident") -> dict[str, Any]:
    """Return an incident as one row of a table.

    gpus = those of its workloads; lost_gpu_hours null = not known; recovery_s null = no work of a
    replacement was seen.
    """
    verdict = incident.verdict
    return {
        "id": incident.id,
        "start": _set_zone(incident.start),
        "cause": verdict.cause,
        "step": verdict.step,
        "why": "; ".join(verdict.holds) or verdict.why,
        "workloads": ", ".join(_list_workloads(incident)),
        "cluster": incident.cluster,
        "nodes": ", ".join(incident.nodes),
        "gpus": incident.gpus,
        "lost_gpu_hours": incident.lost.gpu_hours,
        "lost_basis": incident.lost.basis,
        "recovery_s": incident.recovery_s,
    }


def describe_incident(incident: "Incident") -> dict[str, Any]:
    """Return an incident as an object of the document, with its ranked causes and evidence."""
    verdict = incident.verdict
    return {
        **build_incident_row(incident),
        "workloads": _list_workloads(incident),
        "nodes": incident.nodes,
        "end": _set_zone(incident.end),
        "known_at": _set_zone(incident.known_at),
        "class": verdict.class_,
        "remedy": verdict.remedy,
        "causes": verdict.causes,
        "devices": incident.devices,
        "most_lost_gpu_hours": incident.lost.most,
        "evidence": [_describe_signal(signal) for signal in incident.signals],
    }


def _list_workloads(incident: "Incident") -> list[str]:
    return [f"{kind}/{namespace}/{name}" for _, namespace, kind, name in incident.owners]


def _describe_signal(signal: "Signal") -> dict[str, Any]:
    return {
        "signal": signal.name,
        "at": _set_zone(signal.at),
        "known_at": _set_zone(signal.known_at),
        "text": signal.text,
        "source": signal.source,
        "node": signal.node or None,
        "device": signal.device or None,
        "pod": signal.pod or None,
    }


def _set_zone(at: "datetime") -> "datetime":
    """Return a naive UTC time with its zone."""
    return at.replace(tzinfo=UTC)
