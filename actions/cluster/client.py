"""Read and write one cluster: reads as executors need them, and `send` for the loop's writes.

Reads are retried; a write is sent once. Every write has our field manager and strict validation: an
operator too old for a field then refuses the write instead of dropping the field. A guarded change
also has the uid and the resourceVersion of the object that it was meant for.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from actions.cluster.access import post_review
from actions.cluster.workload_pods import list_workload_pods
from actions.cluster.write_results import WriteResult, interpret_reply, report_no_answer
from fallow.action_models import Change, Target
from fallow.demo_marker import is_demo_home
from fallow.errors import (
    UNREADABLE_JSON,
    AuthError,
    FallowError,
    RefusedError,
    SourceError,
    TemporaryError,
    UsageError,
)
from fallow.kube.api import ApiConnection, ApiError, BackOff
from fallow.kube.api import connect as connect_api
from fallow.kube.api_objects import Page
from fallow.kube.discovery import Discovery
from fallow.kube.listing import Listing
from fallow.settings import Settings

Object = Mapping[str, Any]

MANAGER = "fallow"
PAGE_SIZE = 500
REDISCOVER_S = 60.0
"""The answer that the server does not serve a kind is cached for this many seconds."""
JSON_PATCH = "application/json-patch+json"
_pages = msgspec.json.Decoder(Page[dict[str, Any]])


class KubeClient:
    """One cluster, by the name that stored rows use."""

    def __init__(
        self,
        api: ApiConnection,
        name: str,
        *,
        page: int = PAGE_SIZE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api, self._name, self._page, self._clock = api, name, page, clock
        self._discover()

    def _discover(self) -> None:
        self._discovery, self._discovered = Discovery(self._api), self._clock()

    @property
    def name(self) -> str:
        """The cluster's name in stored rows."""
        return self._name

    @property
    def client(self) -> Any:
        """Return the official client, for calls that are no plain request (an exec)."""
        return self._api.client

    @property
    def api(self) -> ApiConnection:
        """Return the connection, for callers that read rows and not objects."""
        return self._api

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self._api.host

    def get(self, path: str) -> Object | None:
        """Return one object; None = it does not exist.

        Raises:
            RefusedError: the API forbids reading it.
            AuthError: the credentials are not accepted.
            TemporaryError: no answer.
        """
        try:
            body = self._api.get(path)
        except ApiError as error:
            if error.code in {404, 410}:
                return None
            raise _to_error(error) from error
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except UNREADABLE_JSON as error:
            raise SourceError(f"{self.host}{path}: not an object: {error}") from error

    def items(self, path: str, *, labels: str = "", fields: str = "") -> Sequence[Object]:
        """Return all objects of a collection that selectors match; none where it is not served.

        Raises:
            RefusedError: the API forbids listing it.
            AuthError: the credentials are not accepted.
            TemporaryError: no answer.
        """
        selectors = {"labelSelector": labels, "fieldSelector": fields}
        query = {k: v for k, v in selectors.items() if v}
        objects: list[Object] = []
        uids: set[str] = set()
        try:
            for page in Listing(self._api, path, _pages, limit=self._page, query=query):
                for item in page:  # an expired list starts again: objects repeat
                    uid = str((item.get("metadata") or {}).get("uid") or id(item))
                    if uid not in uids:
                        uids.add(uid)
                        objects.append(item)
        except ApiError as error:
            if error.code == 404:  # noqa: PLR2004
                return []
            raise _to_error(error) from error
        return objects

    def collection(self, kind: str, group: str | None = None, namespace: str = "") -> str | None:
        """Return the path of a kind's collection by discovery; None = the server does not serve it.

        Without a group the core group is tried first, then the others in the server's order. An
        unknown kind is looked up again once a minute, so that a newly installed kind is found.
        """
        try:
            path = self._collection(kind, group, namespace)
            if path is None and self._clock() - self._discovered >= REDISCOVER_S:
                self._discover()
                path = self._collection(kind, group, namespace)
        except ApiError as error:
            raise _to_error(error) from error
        return path

    def _collection(self, kind: str, group: str | None, namespace: str) -> str | None:
        groups = self._discovery.groups() if group is None else (group,)
        paths = (self._discovery.path(api_group, kind, namespace) for api_group in groups)
        return next((path for path in paths if path is not None), None)

    def pods(self, target: Target) -> Sequence[Object]:
        """Return all pods whose chain of controllers (or jump of labels) ends at the object.

        Raises:
            RefusedError: an owner on the way may not be read.
            TemporaryError: no answer.
        """
        return list_workload_pods(target, self)

    def review(self, body: Object) -> Object:
        """Return the API's answer to a review of one of our rights; see `post_review`."""
        return post_review(self._api, body)

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        """Send one write once, and return what the server's answer means.

        A dry run goes through admission, quotas and budgets, and stores nothing.
        """
        query: dict[str, object] = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        if change.client != "kubernetes":
            raise SourceError(f"{change.client} is not served at {self._name}")
        body = (
            add_preconditions(change)
            if change.guarded and change.method == "PATCH"
            else change.body
        )
        media = change.content_type if change.method == "PATCH" else "application/json"
        try:
            reply = self._api.write(
                change.method, change.path, body, content_type=media, query=query
            )
        except TemporaryError as error:
            return report_no_answer(str(error))
        return interpret_reply(reply, json_patch=media == JSON_PATCH)


def add_preconditions(change: Change) -> Any:
    """Return a patch body with the uid and resourceVersion of the object that it was meant for."""
    preconditions = {"uid": change.target.uid, "resourceVersion": change.target.resource_version}
    preconditions = {k: v for k, v in preconditions.items() if v}
    if change.content_type == JSON_PATCH:
        # With a replaced version the server compares it and answers 409, not a 422 without a cause.
        tests = [{"op": "test", "path": "/metadata/uid", "value": change.target.uid}]
        version = change.target.resource_version
        if version:
            path = "/metadata/resourceVersion"
            tests.append({"op": "replace", "path": path, "value": version})
        return [*tests, *change.body]
    return {**change.body, "metadata": {**(change.body.get("metadata") or {}), **preconditions}}


def connect(
    settings: Settings, context: str | None = None, *, pause: BackOff | None = None
) -> KubeClient:
    """Connect to a kubeconfig context, else to the configured cluster, and check that it answers.

    Raises:
        SettingsError: no such context, or no configuration at all; the legal ones are named.
        UsageError: the home is a demo's, whose fleet is in no cluster.
        AuthError: the API server does not accept our credentials.
        RefusedError: the API server accepts them and permits no read.
        TemporaryError: the API server cannot be reached.
    """
    if is_demo_home(settings.home):
        raise UsageError(
            f"the fleet of {settings.home} is simulated (`fallow demo`): it is in no cluster",
            hint="without --home and FALLOW_HOME the same command is about your own fleet",
        )
    context_name = context or settings.actions.context or settings.kubernetes.context
    timeout_s = settings.kubernetes.timeout.total_seconds()
    api = connect_api(context_name, timeout_s=timeout_s, pause=pause)
    client = KubeClient(api, settings.cluster, page=settings.kubernetes.page_size)
    client.get("/version")
    client.collection("Pod", "")
    return client


@contextmanager
def open_client(settings: Settings) -> Iterator[KubeClient]:
    """Yield a client of the configured cluster: the transport `kubeconfig`.

    Raises: as `connect`.
    """
    yield connect(settings)


def _to_error(error: ApiError) -> FallowError:
    if error.code == 401:  # noqa: PLR2004
        return AuthError(str(error), hint="the token has expired, or the context is another's")
    if error.code == 403:  # noqa: PLR2004
        return RefusedError(str(error), hint="`fallow doctor --actions` shows what is missing")
    if error.code == 429 or error.code >= 500:  # noqa: PLR2004
        return TemporaryError(str(error))
    return error
