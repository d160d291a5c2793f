"""Order the pending pods for the scheduler."""

from collections.abc import Iterable, Mapping

from simulator.cluster.scheduler.requests import PodGang, PodRequest


def sort_gangs(
    pending: Iterable[PodRequest], min_members: Mapping[str, int] | None = None
) -> list[PodGang]:
    """Return gangs and lone pods by priority, then age, then name.

    A gang has the highest priority and the earliest creation among its members. `min_members`
    is by gang (PodGroup `minMember`); a gang with fewer pods than that so far is left out.
    """
    need = min_members or {}
    members: dict[str, list[PodRequest]] = {}
    for pod in pending:
        members.setdefault(pod.gang or f"pod {pod.uid}", []).append(pod)
    result = []
    for pods in members.values():
        by_name = tuple(sorted(pods, key=lambda pod: (pod.name, pod.uid)))
        least = need.get(by_name[0].gang, 0)
        if len(by_name) >= least:
            result.append(PodGang(by_name[0].gang or by_name[0].name, by_name, least))
    return sorted(result, key=lambda gang: (-get_priority(gang), get_creation(gang), gang.name))


def get_priority(gang: PodGang) -> int:
    """Return the highest priority among the members."""
    return max(pod.priority for pod in gang.members)


def get_creation(gang: PodGang) -> float:
    """Return when the first member was created."""
    return min(pod.created_s for pod in gang.members)
