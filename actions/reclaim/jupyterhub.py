"""Stop a JupyterHub server through the hub, which does not expect its pod to disappear."""

from typing import ClassVar
from urllib.parse import quote

from actions.cluster.allocations import CLAIMS
from actions.cluster.pointers import join_pointer
from actions.reclaim.subjects import to_freed_pods
from actions.recommend import read_verbs as words
from fallow.action_models import Change, Decision, Intent, Target
from fallow.errors import RefusedError
from fallow.kube.objects import Object, get_annotations, get_uid, has_ended, is_deleting
from fallow.protocols import ClusterReader, Right

USER, SERVER = "hub.jupyter.org/username", "hub.jupyter.org/servername"
SINGLE_USER = "component=singleuser-server"


class JupyterHubExecutor:
    """Stop a user's server through the hub's REST API; its owner or an undo starts it again."""

    kinds: ClassVar[frozenset[str]] = frozenset({"JupyterServer"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})
    verbs: ClassVar[frozenset[str]] = frozenset({"stop"})
    rights: ClassVar[tuple[Right, ...]] = (Right("", "pods", ("get", "list")), CLAIMS)

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the hub call that stops a server, and the one that starts it.

        Raises:
            RefusedError: no pod of it runs, or another one than in the evidence.
            TemporaryError: the API does not answer.
        """
        cluster_name, kind, namespace, name = decision.subject
        if cluster_name != cluster.name:
            raise RefusedError(
                f"{kind}/{namespace}/{name} is in cluster {cluster_name}, not {cluster.name}"
            )
        user, _, server = name.partition("/")
        pods = [p for p in _list_pods(namespace, cluster) if _is_server_pod(p, user, server)]
        if not pods:
            raise RefusedError(f"{kind}/{namespace}/{name} has no running pod")
        if decision.uid and all(get_uid(p) != decision.uid for p in pods):
            raise RefusedError(f"{kind}/{namespace}/{name} was started anew: its pod is another")
        target = Target(cluster_name, "", kind, namespace, name, get_uid(pods[0]))
        stop = build_change(target, user, server, running=False)
        return Intent(
            target=target,
            capability="suspend",
            changes=(stop,),
            undo=(build_change(target, user, server, running=True),),
            frees=to_freed_pods(pods, cluster),
            lost=words()[kind].lost,
            notes=(words()[kind].caution,),
        )


def build_change(target: Target, user: str, server: str, *, running: bool) -> Change:
    """Return the change of a server's state.

    `JupyterHubClient` translates it to the hub's verbs.
    """
    ready = join_pointer("servers", server, "ready")
    user_path = f"/hub/api/users/{quote(user, safe='')}"
    return Change(
        target,
        "PATCH",
        f"{user_path}/servers/{quote(server, safe='')}" if server else f"{user_path}/server",
        {"running": running},
        content_type="application/json",
        client="jupyterhub",
        read=user_path,
        was={ready: None if running else True},
        becomes={ready: True if running else None},
        guarded=False,
    )


def _list_pods(namespace: str, cluster: ClusterReader) -> list[Object]:
    path = cluster.collection("Pod", "", namespace)
    pods = cluster.items(path, labels=SINGLE_USER) if path else ()
    return [p for p in pods if not has_ended(p) and not is_deleting(p)]


def _is_server_pod(pod: Object, user: str, server: str) -> bool:
    marks = get_annotations(pod)
    return marks.get(USER) == user and marks.get(SERVER, "") == server
