"""The topmost owner that can be acted upon; unmanaged, forbidden or missing owners mean nobody.

Whoever stands highest undoes what is done to those below. So the topmost owner itself has to be
of a kind that an executor knows how to stop; else nothing is done at all.
"""

from collections.abc import Mapping

from actions.cluster.climbing import Climber, Unknown
from actions.cluster.objects import Object, annotations, group, labels, shown, target
from actions.reclaim.kinds import known
from fallow.acting import Target
from fallow.kube.owner_jumps import called, jumps
from fallow.seams import Cluster

__all__ = ["Unknown", "chain", "top"]


def chain(pod: Object, cluster: Cluster) -> tuple[Object, ...] | Unknown:
    """Return a pod and every owner above it, the topmost last.

    Raises:
        TemporaryError: the API does not answer.
    """
    return Climber(cluster).chain({"apiVersion": "v1", "kind": "Pod", **pod})


def top(pod: Object, cluster: Cluster) -> Target | Unknown:
    """Return the topmost owner of a pod if it can be acted upon, the pod itself where bare.

    Raises:
        TemporaryError: the API does not answer.
    """
    found = chain(pod, cluster)
    if isinstance(found, Unknown):
        return found
    highest = found[-1]
    if len(found) == 1 and (server := _hub(pod)):
        own = target(highest, cluster.name)
        return Target(cluster.name, "", "JupyterServer", own.namespace, server, own.uid)
    kind = called(group(str(highest.get("apiVersion") or "")), str(highest.get("kind")))
    if not known(kind):
        return Unknown(f"unmanaged owner {shown(highest)}: nothing here knows how to stop it")
    return target(highest, cluster.name)


def _hub(pod: Mapping[str, object]) -> str | None:
    ends = (j.end(labels(pod), annotations(pod)) for j in jumps() if not j.group)
    return next((name for name in ends if name), None)
