"""The order in which pending pods are tried."""

from collections.abc import Iterable, Mapping

from simulator.cluster.scheduler.requests import Gang, PodRequest


def gangs(
    pending: Iterable[PodRequest], min_members: Mapping[str, int] | None = None
) -> list[Gang]:
    """Return gangs and lone pods by priority, then age, then name.

    A gang has the highest priority and the earliest creation among its members. `min_members`
    is by gang (PodGroup `minMember`); a gang with fewer pods than that so far is left out.
    """
    raise NotImplementedError
