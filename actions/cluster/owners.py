"""Find the topmost owner of a pod; an unmanaged, forbidden or missing owner yields none.

The topmost controller reverts changes to the objects below it. So the topmost owner itself must be
of a kind that an executor can stop; else nothing is done at all.
"""

from collections.abc import Mapping

from actions.cluster.objects import (
    Object,
    format_object,
    get_annotations,
    get_labels,
    group,
    to_target,
)
from actions.cluster.owner_chains import OwnerChainReader
from actions.reclaim.kinds import is_known
from fallow.action_models import Target
from fallow.kube.owner_chains import UnknownOwner
from fallow.kube.owner_links import get_row_kind, read_owner_links
from fallow.protocols import ClusterReader

__all__ = ["UnknownOwner", "find_top_owner", "read_chain"]


def read_chain(pod: Object, cluster: ClusterReader) -> tuple[Object, ...] | UnknownOwner:
    """Return a pod and every owner above it, the topmost last.

    Raises:
        TemporaryError: the API does not answer.
    """
    return OwnerChainReader(cluster).chain({"apiVersion": "v1", "kind": "Pod", **pod})


def find_top_owner(pod: Object, cluster: ClusterReader) -> Target | UnknownOwner:
    """Return the topmost owner of a pod if an executor can act on it; a bare pod is its own.

    Raises:
        TemporaryError: the API does not answer.
    """
    chain_found = read_chain(pod, cluster)
    if isinstance(chain_found, UnknownOwner):
        return chain_found
    top_object = chain_found[-1]
    if len(chain_found) == 1 and (server := _find_hub_server(pod)):
        pod_target = to_target(top_object, cluster.name)
        return Target(
            cluster.name, "", "JupyterServer", pod_target.namespace, server, pod_target.uid
        )
    kind = get_row_kind(group(str(top_object.get("apiVersion") or "")), str(top_object.get("kind")))
    if not is_known(kind):
        return UnknownOwner(
            f"unmanaged owner {format_object(top_object)}: nothing here knows how to stop it"
        )
    return to_target(top_object, cluster.name)


def _find_hub_server(pod: Mapping[str, object]) -> str | None:
    ends = (j.end(get_labels(pod), get_annotations(pod)) for j in read_owner_links() if not j.group)
    return next((name for name in ends if name), None)
