"""A server that JupyterHub started is stopped by the hub: without its pod the hub is at a loss."""

from typing import ClassVar
from urllib.parse import quote

from actions.cluster.allocations import CLAIMS
from actions.cluster.objects import Object, annotations, ended, going, uid
from actions.cluster.pointers import pointer
from actions.reclaim.subjects import freed
from actions.recommend import verbs as words
from fallow.acting import Change, Decision, Intent, Target
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

USER, SERVER = "hub.jupyter.org/username", "hub.jupyter.org/servername"
SINGLE_USER = "component=singleuser-server"


class JupyterHubExecutor:
    """Stop a user's server through the hub's REST API; its owner or an undo starts it again."""

    kinds: ClassVar[frozenset[str]] = frozenset({"JupyterServer"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"suspend"})
    verbs: ClassVar[frozenset[str]] = frozenset({"stop"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "pods", ("get", "list")),
        CLAIMS,
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the call of the hub that stops a server, and the one that starts it.

        Raises:
            RefusedError: no pod of it runs, or another one than the evidence is of.
            TemporaryError: the API does not answer.
        """
        of, kind, space, called = decision.subject
        if of != cluster.name:
            raise RefusedError(f"{kind}/{space}/{called} is in cluster {of}, not {cluster.name}")
        user, _, server = called.partition("/")
        pods = [p for p in _pods(space, cluster) if _serves(p, user, server)]
        if not pods:
            raise RefusedError(f"{kind}/{space}/{called} is gone: no pod of it runs")
        if decision.uid and all(uid(p) != decision.uid for p in pods):
            raise RefusedError(f"{kind}/{space}/{called} was started anew: its pod is another")
        target = Target(of, "", kind, space, called, uid(pods[0]))
        stop = change(target, user, server, running=False)
        return Intent(
            target=target,
            capability="suspend",
            changes=(stop,),
            undo=(change(target, user, server, running=True),),
            frees=freed(pods, cluster),
            lost=words()[kind].lost,
            notes=(words()[kind].caution,),
        )


def change(target: Target, user: str, server: str, *, running: bool) -> Change:
    """Return what the hub is to do about a server; its door says it in the hub's own verbs."""
    ready = pointer("servers", server, "ready")
    home = f"/hub/api/users/{quote(user, safe='')}"
    return Change(
        target,
        "PATCH",
        f"{home}/servers/{quote(server, safe='')}" if server else f"{home}/server",
        {"running": running},
        content_type="application/json",
        door="jupyterhub",
        read=home,
        was={ready: None if running else True},
        becomes={ready: True if running else None},
        guarded=False,
    )


def _pods(space: str, cluster: Cluster) -> list[Object]:
    path = cluster.collection("Pod", "", space)
    found = cluster.items(path, labels=SINGLE_USER) if path else ()
    return [p for p in found if not ended(p) and not going(p)]


def _serves(pod: Object, user: str, server: str) -> bool:
    said = annotations(pod)
    return said.get(USER) == user and said.get(SERVER, "") == server
