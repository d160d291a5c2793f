"""Index the store's objects for the controllers, like an informer's cache.

It has the objects of the last `refresh`; they are the store's own and are never changed here.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

from fallow.kube.objects import find_controller, get_namespace, get_uid, name
from simulator.cluster.objects import Object, get_kind, is_live
from simulator.kube.history import StoreChange
from simulator.kube.store import ObjectStore

Key = tuple[str, str, str]
"""Kind, namespace, name."""


class View:
    """The objects of one store by key, by kind and namespace, and by owner."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._version = 0
        self._every: defaultdict[str, dict[tuple[str, str], Object]] = defaultdict(dict)
        self._within: defaultdict[tuple[str, str], dict[str, Object]] = defaultdict(dict)
        self._children: defaultdict[str, dict[str, dict[str, Object]]] = defaultdict(dict)
        self.pods: dict[str, Object] = {}
        """By uid."""

    def refresh(self) -> list[StoreChange]:
        """Add the changes since the last call, and return them."""
        self._version, changes = self._store.changes(self._version)
        for change in changes:
            if change.type == "DELETED":
                self._drop(change.object)
            else:
                self._keep(change.object)
        return changes

    def take_in(self, notice: Callable[[StoreChange], None]) -> None:
        """Add the changes since the last call, and pass each to a function."""
        for change in self.refresh():
            notice(change)

    def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """Return an object, or None."""
        return self._every[kind].get((namespace, name))

    def of(self, kind: str, namespace: str | None = None) -> list[Object]:
        """Return the objects of a kind, of one namespace or of all."""
        objects: Iterable[Object]
        if namespace is None:
            objects = self._every[kind].values()
        else:
            objects = self._within[kind, namespace].values()
        return list(objects)

    def count(self, kind: str) -> int:
        """Return how many objects of a kind there are."""
        return len(self._every[kind])

    def children(self, owner_uid: str, kind: str = "") -> list[Object]:
        """Return the objects that an object controls, oldest first; of one kind or of all."""
        by_kind = self._children.get(owner_uid, {})
        if kind:
            return list(by_kind.get(kind, {}).values())
        return [o for by_uid in by_kind.values() for o in by_uid.values()]

    def top(self, obj: Object) -> Object:
        """Return the topmost owner of an object; itself where it has none."""
        for _ in range(10):
            reference = find_controller(obj)
            if reference is None:
                return obj
            above = self.get(get_kind(dict(reference)), get_namespace(obj), str(reference["name"]))
            if above is None:
                return obj
            obj = above
        return obj

    def namespaces(self) -> list[str]:
        """Return the namespaces that hold pods which still run or may."""
        return sorted({get_namespace(p) for p in self.pods.values() if is_live(p)})

    def _keep(self, obj: Object) -> None:
        kind, key = get_kind(obj), (get_namespace(obj), name(obj))
        before = self._every[kind].get(key)
        if before is not None and get_uid(before) != get_uid(obj):
            self._drop(before)
        self._every[kind][key] = obj
        self._within[kind, key[0]][key[1]] = obj
        reference = find_controller(obj)
        if reference is not None:
            self._children[reference["uid"]].setdefault(kind, {})[get_uid(obj)] = obj
        if kind == "Pod":
            self.pods[get_uid(obj)] = obj

    def _drop(self, obj: Object) -> None:
        kind, key = get_kind(obj), (get_namespace(obj), name(obj))
        self._every[kind].pop(key, None)
        self._within[kind, key[0]].pop(key[1], None)
        reference = find_controller(obj)
        if reference is not None:
            siblings = self._children[reference["uid"]]
            siblings.get(kind, {}).pop(get_uid(obj), None)
            if not any(siblings.values()):
                del self._children[reference["uid"]]
        self.pods.pop(get_uid(obj), None)
