"""Find workloads that wait for GPUs while another cluster has room for all of their pods."""

from collections.abc import Iterator

from capacity.placement.pending_places import PendingAnswer, PendingPlaces
from fallow.models import Finding, Subject, compute_finding_id
from fallow.protocols import Views
from fallow.window import Window

ELSEWHERE = "fits_elsewhere"
MOST_NODES = 16


def find_elsewhere(views: Views, window: Window) -> Iterator[Finding]:
    """Yield a finding per workload that waits at the window's end and fits in another cluster.

    They have no GPU-hours and no dollars: free GPUs are counted where they are free.
    """
    places = PendingPlaces(views, window.end)
    for key, pods in places.list_pending().items():
        answer = places.explain(key, pods)
        if answer.answer == ELSEWHERE:
            yield _build_finding(answer, window)


def _build_finding(answer: PendingAnswer, window: Window) -> Finding:
    cluster, namespace, kind, name = answer.key
    fitting = [place for place in answer.places if place.state == "fits"]
    subject = Subject(cluster, namespace, kind, name)
    since = max(answer.since, window.start)
    return Finding(
        id=compute_finding_id("fragmentation", ELSEWHERE, subject, answer.since),
        analyzer="fragmentation",
        kind=ELSEWHERE,
        subject=subject,
        window=Window(since, window.end),
        verdict="wasteful",
        evidence="confirmed",
        confidence=1.0,
        gpu_hours=0.0,
        usd=None,
        details={
            "why": f"{answer.pods} pods of {answer.gpus:g} GPUs wait, and {answer.why}",
            "pods": answer.pods,
            "gpus": answer.gpus,
            "pending_since": answer.since.isoformat(),
            "places": [
                {
                    "cluster": place.cluster,
                    "pool": place.pool,
                    "zone": place.zone,
                    "free": place.free,
                    "nodes": list(place.nodes[:MOST_NODES]),
                }
                for place in fitting
            ],
        },
    )
