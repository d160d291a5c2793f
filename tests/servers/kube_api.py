"""A stand-in for the Kubernetes API server: lists, pages, watches and refusals over real HTTP.

It answers as kubernetes.md measured a real one: pages with continue tokens, both forms of 410, an
expired token's body with a fresh token, bookmarks, metadata-only lists, throttling, RBAC refusals.
Objects are dicts as the API prints them. No admission, no validation, no writes over HTTP.
"""

import gzip
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast
from urllib.parse import parse_qs, urlsplit

Object = dict[str, Any]


@dataclass
class Collection:
    """One kind: its objects, and its history for watches."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    objects: dict[tuple[str, str], Object] = field(default_factory=dict)
    history: list[tuple[int, str, Object]] = field(default_factory=list)

    @property
    def path(self) -> str:
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        return f"{root}/{self.plural}"


@dataclass
class Asked:
    """One request the server has seen."""

    path: str
    query: dict[str, str]
    headers: dict[str, str]


class KubeApi:
    """The server; use as a context manager."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.version = 100
        self.oldest = 0
        self.collections: dict[str, Collection] = {}
        self.asked: list[Asked] = []
        self.forbidden: set[str] = set()
        self.expire_tokens = 0
        self.fresh_tokens = True
        self.throttle: list[tuple[int, str]] = []
        self.bookmarks: list[int] = []
        self.expire_streams = 0
        self.cut_streams = 0
        self.closing = False
        for kind, plural, namespaced in (
            ("Node", "nodes", False),
            ("Namespace", "namespaces", False),
            ("Pod", "pods", True),
            ("Event", "events", True),
            ("ResourceQuota", "resourcequotas", True),
        ):
            self.serve("", "v1", plural, kind, namespaced=namespaced)
        for kind, plural in (
            ("ReplicaSet", "replicasets"),
            ("Deployment", "deployments"),
            ("StatefulSet", "statefulsets"),
        ):
            self.serve("apps", "v1", plural, kind)
        self.serve("batch", "v1", "jobs", "Job")
        self._http = _Server(self)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()

    def serve(
        self, group: str, version: str, plural: str, kind: str, *, namespaced: bool = True
    ) -> None:
        """Serve a kind, as a CRD would."""
        collection = Collection(group, version, plural, kind, namespaced)
        self.collections[collection.path] = collection

    def put(self, kind: str, item: Object, *, group: str | None = None) -> Object:
        """Create or change an object; watches see it."""
        collection = self._collection(kind, group)
        with self.changed:
            self.version += 1
            meta = item.setdefault("metadata", {})
            meta.setdefault("uid", f"{kind.lower()}-{meta['name']}")
            meta["resourceVersion"] = str(self.version)
            key = (meta.get("namespace", ""), meta["name"])
            change = "MODIFIED" if key in collection.objects else "ADDED"
            collection.objects[key] = item
            collection.history.append((self.version, change, item))
            self.changed.notify_all()
        return item

    def delete(self, kind: str, name: str, namespace: str = "", *, seen: bool = True) -> None:
        """Delete an object; with seen=False no watch is told."""
        collection = self._collection(kind, None)
        with self.changed:
            self.version += 1
            item = collection.objects.pop((namespace, name))
            if seen:
                collection.history.append((self.version, "DELETED", item))
            self.changed.notify_all()

    def bookmark(self) -> None:
        """Move every open watch's version forward without a change."""
        with self.changed:
            self.version += 1
            self.bookmarks.append(self.version)
            self.changed.notify_all()

    def forget(self) -> None:
        """Compact history: versions up to now are gone."""
        with self.changed:
            self.oldest = self.version + 1
            self.version += 1
            for collection in self.collections.values():
                collection.history.clear()
            self.changed.notify_all()

    def _collection(self, kind: str, group: str | None) -> Collection:
        return next(
            c
            for c in self.collections.values()
            if c.kind == kind and (group is None or c.group == group)
        )


class Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two writes

    @property
    def api(self) -> KubeApi:
        return cast("_Server", self.server).api

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        del format, args

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        headers = {k.lower(): v for k, v in self.headers.items()}
        self.api.asked.append(Asked(parts.path, query, headers))
        if self.api.throttle:
            code, after = self.api.throttle.pop(0)
            self._status(code, "slow down", headers={"Retry-After": after} if after else {})
        elif parts.path in self.api.forbidden:
            self._status(403, f'User "fallow" cannot list resource at {parts.path}')
        elif parts.path == "/apis":
            self._send({"kind": "APIGroupList", "groups": _groups(self.api)})
        elif resources := _resources(self.api, parts.path):
            self._send({"kind": "APIResourceList", "resources": resources})
        elif parts.path in self.api.collections:
            collection = self.api.collections[parts.path]
            if query.get("watch") == "true":
                self._watch(collection, query)
            else:
                self._list(collection, query)
        elif (one := _one(self.api, parts.path)) is not None:
            self._send(one)
        else:
            self._status(404, "the server could not find the requested resource")

    def _list(self, collection: Collection, query: dict[str, str]) -> None:
        with self.api.changed:
            items = [collection.objects[k] for k in sorted(collection.objects)]
            version = self.api.version
        if selector := query.get("fieldSelector"):
            kind = selector.partition("=")[2]
            items = [i for i in items if i["involvedObject"]["kind"] == kind]
        start, token = 0, query.get("continue")
        if token:
            start = int(token.partition(":")[0])
            if self.api.expire_tokens:
                self.api.expire_tokens -= 1
                fresh = f"{start}:fresh" if self.api.fresh_tokens else ""
                self._status(410, "the continue token has expired", token=fresh)
                return
        limit = int(query.get("limit", "0")) or len(items)
        metadata = {"resourceVersion": str(version)}
        if start + limit < len(items):
            metadata["continue"] = f"{start + limit}:{version}"
        page = items[start : start + limit]
        if "PartialObjectMetadataList" in (self.headers.get("Accept") or ""):
            page = [{"metadata": i["metadata"]} for i in page]
        self._send({"kind": f"{collection.kind}List", "metadata": metadata, "items": page})

    def _watch(self, collection: Collection, query: dict[str, str]) -> None:
        at = int(query["resourceVersion"])
        if at < self.api.oldest:
            self._status(410, "too old resource version")
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._stream(collection, at)
        except OSError:  # the client hung up
            self.close_connection = True

    def _stream(self, collection: Collection, at: int) -> None:
        while True:
            with self.api.changed:
                news = [h for h in collection.history if h[0] > at]
                marks = [b for b in self.api.bookmarks if b > at]
                if not (
                    news
                    or marks
                    or self.api.closing
                    or self.api.expire_streams
                    or self.api.cut_streams
                ):
                    self.api.changed.wait(0.02)
                    continue
                expire, cut = self.api.expire_streams > 0, self.api.cut_streams > 0
                self.api.expire_streams -= expire
                self.api.cut_streams -= cut
                closing = self.api.closing
            for version, change, item in news:
                at = version
                self._line({"type": change, "object": item})
            for mark in marks:
                at = max(at, mark)
                book = {"kind": collection.kind, "metadata": {"resourceVersion": str(mark)}}
                self._line({"type": "BOOKMARK", "object": book})
            if expire:
                gone = {"kind": "Status", "code": 410, "reason": "Expired"}
                self._line({"type": "ERROR", "object": gone})
            if cut:
                self._chunk(b'{"type":"ADDED","obj')  # half a line, then silence
                self.connection.close()
            if expire or cut or closing:
                self.close_connection = True
                if not cut:
                    self.wfile.write(b"0\r\n\r\n")
                return

    def _line(self, item: Object) -> None:
        self._chunk(json.dumps(item).encode() + b"\n")

    def _chunk(self, data: bytes) -> None:
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def _status(
        self, code: int, message: str, *, token: str = "", headers: dict[str, str] | None = None
    ) -> None:
        metadata = {"continue": token} if token else {}
        status = {"kind": "Status", "code": code, "message": message, "metadata": metadata}
        self._send(status, code, headers)

    def _send(self, body: Object, code: int = 200, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        packed = len(data) > 1024 and "gzip" in (self.headers.get("Accept-Encoding") or "")
        data = gzip.compress(data) if packed else data
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if packed:
            self.send_header("Content-Encoding", "gzip")
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: KubeApi) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.api = api


def _groups(api: KubeApi) -> list[Object]:
    versions: dict[str, list[Object]] = {}
    for c in api.collections.values():
        entry = {"groupVersion": f"{c.group}/{c.version}", "version": c.version}
        if c.group and entry not in versions.setdefault(c.group, []):
            versions[c.group].append(entry)
    return [
        {"name": name, "versions": found, "preferredVersion": found[0]}
        for name, found in versions.items()
    ]


def _resources(api: KubeApi, path: str) -> list[Object]:
    return [
        {"name": c.plural, "kind": c.kind, "namespaced": c.namespaced}
        for c in api.collections.values()
        if c.path.rpartition("/")[0] == path
    ]


def _one(api: KubeApi, path: str) -> Object | None:
    *head, plural, name = path.split("/")
    namespace = ""
    if len(head) > 2 and head[-2] == "namespaces":
        namespace, head = head[-1], head[:-2]
    collection = api.collections.get("/".join([*head, plural]))
    return collection.objects.get((namespace, name)) if collection else None
