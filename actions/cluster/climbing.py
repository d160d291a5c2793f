"""Climb from a pod along its controllers; what cannot be read ends the climb as unknown.

Each owner is read once. After a few owners of one kind the whole kind is listed: a namespace with
hundreds of Jobs then costs one request and not hundreds.
"""

from collections import Counter

import msgspec

from actions.cluster.objects import Object, controller, group, namespace, shown, uid
from fallow.errors import FallowError, RefusedError, TemporaryError
from fallow.kube.owner_jumps import Jump, jumps
from fallow.seams import Cluster

MAX_DEPTH = 10
"""Links followed before a chain counts as unresolvable."""
SINGLY = 3
"""Owners of a kind read one by one before the kind is listed."""


class Unknown(msgspec.Struct, frozen=True):
    """Who owns a pod cannot be told, so nothing is done to it."""

    reason: str


class Climber:
    """Reads owners, each once, for as long as it lives: make a new one for every look."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._read: dict[tuple[str, str], Object | None] = {}
        self._singly: Counter[str] = Counter()

    def chain(self, pod: Object, *, jump: bool = True) -> tuple[Object, ...] | Unknown:
        """Return a pod and its owners, the topmost last.

        Raises:
            TemporaryError: the API does not answer.
        """
        found = self._climb((pod,))
        if isinstance(found, Unknown) or not jump:
            return found
        top = found[-1]
        if any(top.get("kind") == j.kind and _group(top) == j.group for j in jumps()):
            return found
        for link in jumps():
            name = _end(link, pod)
            if name is None or not link.group:
                continue
            above = self._named(link.kind, link.group, namespace(pod), name)
            if isinstance(above, Unknown):
                return above
            if above is not None:  # a label is only a hint: without an object the chain stands
                return self._climb((*found, above))
        return found

    def _climb(self, chain: tuple[Object, ...]) -> tuple[Object, ...] | Unknown:
        while (reference := controller(chain[-1])) is not None:
            kind, said = str(reference.get("kind")), f"{reference.get('kind')} "
            said += f"{reference.get('name')}"
            if len(chain) > MAX_DEPTH:
                return Unknown(f"more than {MAX_DEPTH} owners above {shown(chain[0], 'Pod')}")
            of = group(str(reference.get("apiVersion") or ""))
            above = self._named(kind, of, namespace(chain[-1]), str(reference.get("name")))
            if isinstance(above, Unknown):
                return above
            if above is None:
                return Unknown(f"its owner {said} is not there")
            if uid(above) != reference.get("uid"):
                return Unknown(f"its owner {said} is gone and another has its name")
            chain = (*chain, above)
        return chain

    def _named(self, kind: str, of: str, space: str, name: str) -> Object | Unknown | None:
        try:
            path = self._cluster.collection(kind, of, space)
            if path is None:
                return None
            return self._object(path, name, kind)
        except TemporaryError:
            raise
        except RefusedError as error:
            return Unknown(f"its owner {kind} {name} may not be read: {error.message}")
        except FallowError as error:
            return Unknown(f"its owner {kind} {name} cannot be read: {error.message}")

    def _object(self, path: str, name: str, kind: str) -> Object | None:
        key = (path, name)
        if key in self._read:
            return self._read[key]
        self._singly[path] += 1
        if self._singly[path] == SINGLY + 1:
            for item in self._cluster.items(path):
                named = {"apiVersion": _version(path), "kind": kind, **item}
                self._read.setdefault((path, str(item["metadata"]["name"])), named)
        if key not in self._read:
            self._read[key] = self._cluster.get(f"{path}/{name}")
        return self._read[key]


def _version(path: str) -> str:
    words = path.split("/")
    return words[2] if words[1] == "api" else f"{words[2]}/{words[3]}"


def _group(obj: Object) -> str:
    return group(str(obj.get("apiVersion") or ""))


def _end(link: Jump, pod: Object) -> str | None:
    words = pod.get("metadata") or {}
    return link.end(words.get("labels") or {}, words.get("annotations") or {})
