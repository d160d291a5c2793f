"""Read the owners of pods from the API server.

Each owner is read once. After a few owners of one kind the whole kind is listed: a namespace with
hundreds of Jobs then costs one request and not hundreds.
"""

from collections import Counter

from fallow.errors import FallowError, RefusedError, TemporaryError
from fallow.kube.objects import (
    Object,
    find_controller,
    get_annotations,
    get_labels,
    get_namespace,
    get_uid,
)
from fallow.kube.objects import name as get_name
from fallow.kube.owner_chains import (
    ChainObject,
    Controller,
    OwnerChains,
    UnknownOwner,
    UnknownOwnerError,
    split_api_version,
)
from fallow.protocols import ClusterReader

MAX_SINGLE_READS = 3
"""Owners of a kind read one by one before the kind is listed."""


class OwnerChainReader:
    """Reads owners and caches each one for its lifetime.

    Create a new reader for every evaluation.
    """

    def __init__(self, cluster: ClusterReader) -> None:
        self._cluster = cluster
        self._chains = OwnerChains(self._find)
        self._read: dict[tuple[str, str], Object | None] = {}
        self._singly: Counter[str] = Counter()

    def chain(self, pod: Object, *, jump: bool = True) -> tuple[Object, ...] | UnknownOwner:
        """Return a pod and its owners, the topmost last; `jump` follows the links of labels too.

        Raises:
            TemporaryError: the API does not answer.
        """
        marks = (get_labels(pod), get_annotations(pod)) if jump else None
        chain = self._chains.chain(_build_link("Pod", pod), marks)
        if isinstance(chain, UnknownOwner):
            return chain
        return tuple(owner.body for owner in chain if owner.body)

    def _find(
        self, group: str, kind: str, namespace: str, name: str, version: str
    ) -> ChainObject | None:
        del version
        try:
            path = self._cluster.collection(kind, group, namespace)
            owner = self._get(path, name, kind) if path else None
        except TemporaryError:
            raise
        except RefusedError as error:
            raise UnknownOwnerError(
                f"its owner {kind} {name} may not be read: {error.message}"
            ) from error
        except FallowError as error:
            raise UnknownOwnerError(
                f"its owner {kind} {name} cannot be read: {error.message}"
            ) from error
        return _build_link(kind, owner) if owner else None

    def _get(self, path: str, owner: str, kind: str) -> Object | None:
        key = (path, owner)
        if key in self._read:
            return self._read[key]
        self._singly[path] += 1
        if self._singly[path] == MAX_SINGLE_READS + 1:
            for item in self._cluster.items(path):
                obj = {"apiVersion": _get_version(path), "kind": kind, **item}
                self._read.setdefault((path, get_name(item)), obj)
        if key not in self._read:
            self._read[key] = self._cluster.get(f"{path}/{owner}")
        return self._read[key]


def _build_link(kind: str, obj: Object) -> ChainObject:
    reference = find_controller(obj)
    keys = ("apiVersion", "kind", "name", "uid")
    controller = Controller(*(str(reference.get(k) or "") for k in keys)) if reference else None
    group, _ = split_api_version(str(obj.get("apiVersion") or ""))
    return ChainObject(
        group, kind, get_namespace(obj), get_name(obj), get_uid(obj), controller, obj
    )


def _get_version(path: str) -> str:
    parts = path.split("/")
    return parts[2] if parts[1] == "api" else f"{parts[2]}/{parts[3]}"
