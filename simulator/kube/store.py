"""Store objects of all kinds like the API server, with one version counter and the write rules.

Objects are never changed in place: every write makes a new one, so returned objects stay as they
are, and callers must not change them. Admission and controllers that the real server runs in other
processes (garbage collection, disruption and quota status) belong to `simulator.cluster`.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from simulator.kube import admission, canonical, fields, rules, scale, server_metadata
from simulator.kube.deletion import DeleteOptions, end_object
from simulator.kube.history import ChangeHistory, StoreChange, Type
from simulator.kube.kinds import NEWEST, ApiKind, KindCatalog, build_kind
from simulator.kube.managed import record_manager
from simulator.kube.patches import How, apply_patch, copy_json
from simulator.kube.selectors import Test, parse_label_selector
from simulator.kube.status import (
    MODIFIED,
    InvalidField,
    StatusError,
    build_already_exists,
    build_conflict,
    build_invalid,
    build_not_found,
)

Object = dict[str, Any]
Subresource = Literal["", "status", "scale", "resize"]
Changes = list[StoreChange]
Listed = Callable[[str], Sequence[Object]]
"""Return all objects of a kind."""
Webhook = Callable[[Object, "Object | None", Listed], None]
"""Check a new object against the one it replaces and the others; raise a refusal."""

CRD = "CustomResourceDefinition"
NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
HISTORY = 10_000
"""Changes in the history of watches (5 kB each); the real server keeps five minutes of them."""


class ObjectStore:
    """All objects of one cluster. Thread-safe; the same calls with one seed give the same store.

    `now` returns simulated seconds since the epoch. `installed` names the groups whose custom kinds
    are served from the beginning; None = all of `resources.csv`. `version` is the server's: an
    older one lacks what came after it.
    """

    def __init__(
        self,
        now: Callable[[], float],
        seed: int = 0,
        *,
        installed: Iterable[str] | None = None,
        history: int = HISTORY,
        version: str = NEWEST,
    ) -> None:
        self.now = now
        self.catalog = KindCatalog(installed, version)
        self.changed = threading.Condition(threading.RLock())
        self.version = 0
        self.history = ChangeHistory(history)
        self.webhooks: Mapping[str, Webhook] = {}
        """Validating webhooks by kind; a CRD without its operator accepts everything."""
        self._draws = server_metadata.IdentityGenerator(seed)
        self._objects: dict[str, dict[str, Object]] = {}
        self._sorted: dict[str, list[str]] = {}
        for name in NAMESPACES:
            self.create("Namespace", {"metadata": {"name": name}})

    def kind(self, name: str) -> ApiKind:
        """Return a kind by its name (`Pod`, `Queue.scheduling.run.ai`)."""
        return self.catalog.find(name)

    # reading

    def get(self, kind: str, name: str, namespace: str = "") -> Object | None:
        """Return an object, or None."""
        with self.changed:
            return self._shelf(self.kind(kind)).get(server_metadata.build_key(namespace, name))

    def list(
        self, kind: str, namespace: str | None = None, labels: Mapping[str, str] | str | None = None
    ) -> list[Object]:
        """Return the objects of a kind by namespace and name; None = of all namespaces."""
        with self.changed:
            return [
                o for _, o in self.sorted(self.kind(kind), namespace, parse_label_selector(labels))
            ]

    def sorted(
        self, kind: ApiKind, namespace: str | None = None, test: Test | None = None
    ) -> Iterator[tuple[str, Object]]:
        """Yield keys and objects in the server's order; hold `changed` meanwhile."""
        shelf = self.shelf(kind)
        head = f"{namespace}/" if namespace and kind.namespaced else ""
        for key in self.keys(kind):
            if key.startswith(head) and (test is None or test(shelf[key])):
                yield key, shelf[key]

    def keys(self, kind: ApiKind) -> Sequence[str]:
        """Return the keys of a kind's objects in the server's order; hold `changed` meanwhile."""
        if kind.key not in self._sorted:
            self._sorted[kind.key] = sorted(self.shelf(kind))
        return self._sorted[kind.key]

    def shelf(self, kind: ApiKind) -> Mapping[str, Object]:
        """Return the objects of a kind by key, not to be changed; hold `changed` meanwhile."""
        return self._shelf(kind)

    def at(self, kind: ApiKind, version: int) -> dict[str, Object]:
        """Return the objects of a kind, by key, as of a version that is still in the history."""
        with self.changed:
            return self.history.past(kind.key, self._shelf(kind), version)

    def changes(self, since: int) -> tuple[int, Changes]:
        """Return the current version and the changes after a version.

        Raises:
            ApiError: 410 the history does not go back so far: list again.
        """
        with self.changed:
            if since < self.history.forgotten:
                message = f"too old resource version: {since} ({self.history.forgotten + 1})"
                raise StatusError(410, "Expired", message)
            return self.version, self.history.since(since)

    # writing

    def create(
        self,
        kind: str,
        obj: Object,
        *,
        manager: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        """Store a new object and return it as the server completed it.

        Raises:
            ApiError: 404 no such namespace, 409 exists, 422 invalid, 403 a quota refuses.
        """
        kind_served, new = self.kind(kind), copy_json(obj)
        with self.changed:
            if strict:
                fields.refuse(kind_served, new, patch=False)
            new = fields.prune(kind_served, new)
            new["metadata"] = dict(new.get("metadata") or {})
            new = server_metadata.build_initial_metadata(kind_served, new, self._draws, self.now())
            meta = new["metadata"]
            name, namespace = meta.get("name") or "", meta.get("namespace") or ""
            self._refuse(kind_served, name, server_metadata.find_invalid_metadata(meta))
            admission.check_namespace(self, kind_served, name, namespace)
            key = server_metadata.build_key(namespace, name)
            if key in self._shelf(kind_served):
                raise build_already_exists(kind_served.group, kind_served.plural, name)
            new = rules.fill_defaults(kind_served, new, server_metadata.format_time(self.now()))
            new = canonical.canonicalize(kind_served, new, {})
            new = admission.admit(self, kind_served, new)
            self._refuse(kind_served, name, rules.find_invalid_fields(kind_served, new))
            self._call_webhook(kind_served, new, None)
            admission.check_quota(self, kind_served, new, dry_run=dry_run)
            new = self._managed(kind_served, {}, new, manager, "")
            return new if dry_run else self._commit(kind_served, key, "ADDED", new, None)

    def patch(
        self,
        kind: str,
        name: str,
        namespace: str,
        body: Any,
        *,
        how: How = "merge",
        subresource: Subresource = "",
        manager: str = "",
        dry_run: bool = False,
        strict: bool = False,
    ) -> Object:
        """Change an object and return it; a patch that changes nothing keeps the version.

        Raises:
            ApiError: 404 no such object, 409 not the version meant, 415 no such patch of this
                kind, 422 invalid or a JSON patch that does not apply.
        """
        kind_served = self.kind(kind)
        if how == "strategic" and kind_served.custom:
            message = (
                "the body of the request was in an unknown format - accepted media types include: "
                "application/json-patch+json, application/merge-patch+json"
            )
            raise StatusError(415, "UnsupportedMediaType", message, {})
        with self.changed:
            old = self._existing(kind_served, name, namespace)
            document = scale.scale_of(kind_served, old) if subresource == "scale" else old
            new = apply_patch(document, copy_json(body), how)
            uid = (new.get("metadata") or {}).get("uid", old["metadata"]["uid"])
            if uid != old["metadata"]["uid"]:
                wrong = InvalidField("metadata.uid", f'Invalid value: "{uid}": field is immutable')
                raise build_invalid(kind_served.group, kind_served.kind, name, [wrong])
            if strict and subresource != "scale":
                fields.refuse(kind_served, new, patch=True)
            return self._update(kind_served, old, new, subresource, manager, dry_run=dry_run)

    def delete(
        self,
        kind: str,
        name: str,
        namespace: str = "",
        *,
        grace_s: float | None = None,
        uid: str | None = None,
    ) -> None:
        """Delete an object; a running pod gets its grace period and stays until `remove`.

        Raises:
            ApiError: 404 no such object, 409 its uid is another.
        """
        self.end(kind, name, namespace, DeleteOptions(grace_s=grace_s, uid=uid))

    def end(self, kind: str, name: str, namespace: str, how: DeleteOptions) -> tuple[Object, bool]:
        """Delete an object by its options; return what is left and whether it is deleted."""
        kind_served = self.kind(kind)
        with self.changed:
            old = self._existing(kind_served, name, namespace)
            new, deleted = end_object(kind_served, old, how, self.now())
            if how.dry_run or (new == old and not deleted):
                return new, deleted
            return self._settle(kind_served, old, new, deleted=deleted), deleted

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Remove an object at once, as the kubelet does when a pod's containers have ended.

        Raises:
            ApiError: 404 no such object.
        """
        kind_served = self.kind(kind)
        with self.changed:
            old = self._existing(kind_served, name, namespace)
            last = copy_json(old)
            # Watches get the time of the deletion, also without an earlier delete request.
            last["metadata"].setdefault(
                "deletionTimestamp", server_metadata.format_time(self.now())
            )
            self._settle(kind_served, old, last, deleted=not old["metadata"].get("finalizers"))

    def bind(self, name: str, namespace: str, node: str) -> Object:
        """Set a pod's node, and the node's topology labels.

        Raises:
            ApiError: 404 no such pod, 409 it has another node already.
        """
        with self.changed:
            old = self._existing(self.kind("Pod"), name, namespace)
            if bound := old["spec"].get("nodeName"):
                why = f"pod {name} is already assigned to node {bound!r}"
                raise build_conflict("", "pods/binding", name, why)
            new = admission.label_bound_pod(
                self, old, node, server_metadata.format_time(self.now())
            )
            return self._commit(
                self.kind("Pod"), server_metadata.build_key(namespace, name), "MODIFIED", new, old
            )

    def restore(self, kind: str, obj: Object) -> Object:
        """Store an object unchanged, like a backup: no defaults, no checks, its own uid."""
        kind_served, new = self.kind(kind), copy_json(obj)
        with self.changed:
            meta = new["metadata"]
            key = server_metadata.build_key(meta.get("namespace") or "", meta["name"])
            old = self._shelf(kind_served).get(key)
            uid = old["metadata"]["uid"] if old else self._draws.uid()
            meta.setdefault("uid", uid)
            new = {"apiVersion": kind_served.api_version, "kind": kind_served.kind, **new}
            return self._commit(kind_served, key, "MODIFIED" if old else "ADDED", new, old)

    def advance(self) -> int:
        """Increase the version without a change, as writes of other kinds do."""
        with self.changed:
            self.version += 1
            self.changed.notify_all()
            return self.version

    def compute_digest(self) -> str:
        """Return a hash of all objects."""
        with self.changed:
            objects = {kind: shelf for kind, shelf in self._objects.items() if shelf}
            encoded = msgspec.json.encode(objects, order="deterministic")
        return blake2b(encoded, digest_size=16).hexdigest()

    # within

    def _shelf(self, kind: ApiKind) -> dict[str, Object]:
        return self._objects.setdefault(kind.key, {})

    def _existing(self, kind: ApiKind, name: str, namespace: str) -> Object:
        existing = self._shelf(kind).get(server_metadata.build_key(namespace, name))
        if existing is None:
            raise build_not_found(kind.group, kind.plural, name)
        return existing

    @staticmethod
    def _refuse(kind: ApiKind, name: str, wrongs: Iterable[InvalidField]) -> None:
        if problems := list(wrongs):
            raise build_invalid(kind.group, kind.kind, name, problems)

    def _call_webhook(self, kind: ApiKind, new: Object, old: Object | None) -> None:
        webhook = self.webhooks.get(kind.key)
        if webhook is not None:
            webhook(new, old, self.list)

    def _update(
        self,
        kind: ApiKind,
        old: Object,
        new: Object,
        subresource: Subresource,
        manager: str,
        *,
        dry_run: bool,
    ) -> Object:
        name = old["metadata"]["name"]
        given_version = (new.get("metadata") or {}).get("resourceVersion") or ""
        if given_version not in {"", old["metadata"]["resourceVersion"]}:
            raise build_conflict(kind.group, kind.plural, name, MODIFIED)
        if subresource == "scale":
            new = scale.apply_scale(kind, old, new)
        new = fields.prune(kind, new)
        new = _get_part(kind, old, new, subresource)
        if not subresource:
            new = rules.apply_defaults(kind, new)
        new = canonical.canonicalize(kind, new, old)
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
        self._refuse(kind, name, server_metadata.find_invalid_metadata(new["metadata"]))
        if subresource != "status":
            self._refuse(kind, name, rules.find_invalid_fields(kind, new))
            self._refuse(kind, name, rules.find_invalid_updates(kind, old, new, subresource))
        if new == old:
            return scale.scale_of(kind, old) if subresource == "scale" else old
        if subresource != "status":
            self._call_webhook(kind, new, old)
        if server_metadata.is_new_generation(kind, old, new):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        new = self._managed(kind, old, new, manager, subresource)
        if not dry_run:
            deleted = "deletionTimestamp" in new["metadata"] and not new["metadata"].get(
                "finalizers"
            )
            if kind.key == "Pod" and new["metadata"].get("deletionGracePeriodSeconds"):
                deleted = False
            new = self._settle(kind, old, new, deleted=deleted)
        return scale.scale_of(kind, new) if subresource == "scale" else new

    def _managed(
        self, kind: ApiKind, old: Object, new: Object, manager: str, subresource: str
    ) -> Object:
        """Return an object with its field managers."""
        if not manager:
            return new
        entries = record_manager(
            old,
            new,
            manager=manager,
            subresource=subresource,
            api_version=kind.api_version,
            time=server_metadata.format_time(self.now()),
            custom=kind.custom,
        )
        return {**new, "metadata": {**new["metadata"], "managedFields": entries}}

    def _settle(self, kind: ApiKind, old: Object, new: Object, *, deleted: bool) -> Object:
        key = server_metadata.build_key(
            old["metadata"].get("namespace") or "", old["metadata"]["name"]
        )
        return self._commit(kind, key, "DELETED" if deleted else "MODIFIED", new, old)

    def _commit(
        self, kind: ApiKind, key: str, change: Type, new: Object, before: Object | None
    ) -> Object:
        self.version += 1
        meta = {**new["metadata"], "resourceVersion": str(self.version)}
        new = {**new, "metadata": meta}
        shelf = self._shelf(kind)
        if change == "DELETED":
            del shelf[key]
            self._sorted.pop(kind.key, None)
        else:
            if key not in shelf:
                self._sorted.pop(kind.key, None)
            shelf[key] = new
        self.history.add(StoreChange(self.version, change, kind.key, key, new, before))
        if kind.key == CRD:
            self._served(new, change)
        self.changed.notify_all()
        return new

    def _served(self, definition: Object, change: Type) -> None:
        kind = build_kind(definition["spec"])
        if change != "DELETED":
            self.catalog.serve(kind)
            return
        for key, item in list(self._shelf(kind).items()):
            self._commit(kind, key, "DELETED", item, item)
        self.catalog.drop(kind)


def _get_part(kind: ApiKind, old: Object, new: Object, subresource: Subresource) -> Object:
    """Return the new object, limited to the fields that this subresource may write."""
    if subresource == "status":
        out = {**old, "metadata": dict(old["metadata"])}
        out.pop("status", None)
        return {**out, "status": new["status"]} if "status" in new else out
    out = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"]}
    out["metadata"] = server_metadata.keep_server_fields(old, new)
    if kind.status:
        out.pop("status", None)
        if "status" in old:
            out["status"] = old["status"]
    return out
