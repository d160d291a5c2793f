"""Handle requests: translate verbs and paths into calls of the store."""

from collections.abc import Mapping
from typing import Any, cast

import msgspec

from simulator.kube import representations, scale
from simulator.kube.access import Access, AccessReview
from simulator.kube.deletion import DeleteOptions, parse_options
from simulator.kube.discovery import REVIEWS
from simulator.kube.eviction import evict
from simulator.kube.faults import Faults
from simulator.kube.kinds import RESIZE_SINCE, ApiKind
from simulator.kube.paging import list_page
from simulator.kube.patches import How
from simulator.kube.paths import RequestTarget
from simulator.kube.request import ApiRequest, ApiResponse, is_dry_run, read_body_options
from simulator.kube.status import (
    StatusError,
    build_bad_request,
    build_no_such_path,
    build_not_found,
    build_success,
)
from simulator.kube.store import ObjectStore, Subresource

Object = dict[str, Any]

PATCHES: dict[str, How] = {
    "application/merge-patch+json": "merge",
    "application/json-patch+json": "json",
    "application/strategic-merge-patch+json": "strategic",
}
NOT_READY = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
REVIEW_PATH = "/".join(("", "apis", *REVIEWS[:3]))
_READ = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_WRITABLE = {"", "status", "scale", "resize"}


class ApiHandler:
    """Handles requests about objects; discovery and watches are in the server."""

    def __init__(self, store: ObjectStore, access: Access, faults: Faults) -> None:
        self._store, self._access, self._faults = store, access, faults

    def build_review(self, request: ApiRequest, target: RequestTarget) -> AccessReview:
        """Return the access review of a request: the verb and the object that it needs."""
        verb = _READ.get(request.method, "")
        if not target.name and verb == "get":
            is_watch = request.query.get("watch") in {"true", "1"}
            verb = "watch" if is_watch else "list"
        kind = target.kind
        return AccessReview(verb, kind.group, target.resource, target.namespace, target.name)

    def review(self, request: ApiRequest, user: str) -> ApiResponse:
        """Answer whether a user has a permission."""
        return ApiResponse(self._access.review(user, _build_object(request.decoded())), 201)

    def answer(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        """Answer a request.

        Raises:
            ApiError: whatever the server refuses.
        """
        verbs = {
            ("GET", False): self._list,
            ("GET", True): self._get,
            ("POST", False): self._create,
            ("POST", True): self._act,
            ("PATCH", True): self._patch,
            ("DELETE", True): self._delete,
        }
        verb = verbs.get((request.method, bool(target.name)))
        if verb is None:
            message = "the server does not allow this method on the requested resource"
            raise StatusError(405, "MethodNotAllowed", message, {})
        return verb(request, target)

    def _check_part(self, kind: ApiKind, part: str) -> None:
        resizes = kind.key == "Pod" and self._store.catalog.has(RESIZE_SINCE)
        if (
            part not in _WRITABLE
            or (part == "status" and not kind.status)
            or (part == "scale" and kind.scale is None)
            or (part == "resize" and not resizes)
        ):
            raise build_no_such_path()

    def _render(self, request: ApiRequest, target: RequestTarget, item: Object) -> Object:
        return representations.convert_to_form(target, item, request.form)

    def _list(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        token = bool(request.query.get("continue"))
        page = list_page(
            self._store,
            target.kind,
            target.namespace,
            request.query,
            expired=token and self._faults.take_expired_token(),
            fresh=self._faults.fresh_tokens,
        )
        return ApiResponse(
            representations.list_in_form(target, page.objects, page.metadata(), request.form)
        )

    def _get(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        kind = target.kind
        self._check_part(kind, target.subresource)
        existing = self._store.get(kind.key, target.name, target.namespace)
        if existing is None:
            raise build_not_found(kind.group, kind.plural, target.name)
        item = scale.scale_of(kind, existing) if target.subresource == "scale" else existing
        return ApiResponse(self._render(request, target, item))

    def _create(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        kind, item = target.kind, _build_object(request.decoded())
        _check_same_kind(target, item)
        meta = item["metadata"] = dict(item.get("metadata") or {})
        if kind.namespaced:
            if not target.namespace:
                raise build_bad_request("an empty namespace may not be set during creation")
            _check_same(meta, "namespace", target.namespace, "request")
            meta["namespace"] = target.namespace
        if kind.key == "Node":
            item = _add_taints(item)
        created = self._store.create(
            kind.key,
            _find_stored(kind, item),
            manager=request.manager,
            dry_run=is_dry_run(request.query),
            strict=request.strict,
        )
        return ApiResponse(self._render(request, target, created), 201)

    def _act(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        body = _build_object(request.decoded() or {})
        if (target.kind.key, target.subresource) == ("Pod", "eviction"):
            options = body.get("deleteOptions") or {}
            dry = is_dry_run(request.query) or is_dry_run(read_body_options(options))
            how = parse_options(options, {}, dry_run=dry)
            evict(self._store, target.name, target.namespace, how, manager=request.manager)
            return ApiResponse(build_success(201), 201)
        raise build_no_such_path()

    def _patch(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        kind = target.kind
        self._check_part(kind, target.subresource)
        how = PATCHES.get(request.media)
        if how is None:
            legal = [p for p in PATCHES if not kind.custom or PATCHES[p] != "strategic"]
            message = (
                "the body of the request was in an unknown format - accepted media types include: "
                f"{', '.join(legal)}"
            )
            raise StatusError(415, "UnsupportedMediaType", message, {})
        try:
            body = msgspec.json.decode(request.body)
        except msgspec.DecodeError as error:
            raise build_bad_request(f"error decoding patch: {error}") from error
        new = self._store.patch(
            kind.key,
            target.name,
            target.namespace,
            body,
            how=how,
            subresource=cast("Subresource", target.subresource),
            manager=request.manager,
            dry_run=is_dry_run(request.query),
            strict=request.strict,
        )
        return ApiResponse(self._render(request, target, new))

    def _delete(self, request: ApiRequest, target: RequestTarget) -> ApiResponse:
        kind, how = target.kind, _parse_deletion_options(request, target.kind)
        if target.subresource:
            raise build_no_such_path()
        left, deleted = self._store.end(kind.key, target.name, target.namespace, how)
        if deleted and kind.key != "Pod":
            details = {"name": target.name, "group": kind.group, "kind": kind.plural}
            uid = {"uid": left["metadata"]["uid"]}
            return ApiResponse(
                build_success(details={**{k: v for k, v in details.items() if v}, **uid})
            )
        return ApiResponse(self._render(request, target, left))


def _parse_deletion_options(request: ApiRequest, kind: ApiKind) -> DeleteOptions:
    body = request.decoded()
    options = body if isinstance(body, dict) else {}
    dry = is_dry_run({**read_body_options(options), **request.query})
    how = parse_options(body, request.query, dry_run=dry)
    has_propagation = "propagationPolicy" in request.query or options.get("propagationPolicy")
    if (
        kind.key == "Job" and not has_propagation
    ):  # of batch/v1 only: its pods stay without an owner
        return msgspec.structs.replace(how, propagation="Orphan")
    return how


def _build_object(body: Any) -> Object:
    if not isinstance(body, dict):
        raise build_bad_request("the object provided is unrecognized: it is no JSON object")
    return body


def _check_same_kind(target: RequestTarget, item: Object) -> None:
    api, kind = item.get("apiVersion"), item.get("kind")
    if api and api != target.api_version:
        raise build_bad_request(
            f"the API version in the data ({api}) does not match the expected API version "
            f"({target.api_version})"
        )
    if kind and kind != target.kind.kind:
        raise build_bad_request(f"{kind} in the data is not the expected kind {target.kind.kind}")


def _check_same(meta: Mapping[str, Any], field: str, wanted: str, source: str) -> None:
    value = meta.get(field) or wanted
    if value != wanted:
        raise build_bad_request(
            f"the {field} of the object ({value}) does not match the {field} on the {source} "
            f"({wanted})"
        )


def _find_stored(kind: ApiKind, item: Object) -> Object:
    return {**item, "apiVersion": kind.api_version, "kind": kind.kind}


def _add_taints(item: Object) -> Object:
    spec = dict(item.get("spec") or {})
    taints = list(spec.get("taints") or ())
    if all(t.get("key") != NOT_READY["key"] for t in taints):
        taints.append(NOT_READY)
    return {**item, "spec": {**spec, "taints": taints}}
