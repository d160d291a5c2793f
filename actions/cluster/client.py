"""The one door to one cluster: reads as executors see it, and `send` for what the loop writes.

Reads are tried again; a write is sent once. Every write carries our field manager, strict
validation (an operator too old for a field refuses it instead of dropping it) and, where the
change is guarded, the uid and resourceVersion of the object it was meant for.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from actions.cluster.workload_pods import list_workload_pods
from actions.cluster.write_results import WriteResult, interpret_reply, no_answer
from fallow.action_models import Change, Target
from fallow.errors import AuthError, FallowError, RefusedError, SourceError, TemporaryError
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
"""What the server does not serve is believed for so long."""
JSON_PATCH = "application/json-patch+json"
_pages = msgspec.json.Decoder(Page[dict[str, Any]])


class KubeClient:
    """One cluster, by the name that rows give it."""

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
        """The cluster's name as in the rows."""
        return self._name

    @property
    def client(self) -> Any:
        """The official client, for what is no plain request (a command inside a container)."""
        return self._api.client

    @property
    def api(self) -> ApiConnection:
        """The connection, for who reads rows and not objects."""
        return self._api

    @property
    def host(self) -> str:
        """URL of the API server."""
        return self._api.host

    def get(self, path: str) -> Object | None:
        """Return one object; None = it is not there.

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
        except msgspec.DecodeError as error:
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
                for item in page:  # an expired list begins anew: objects come again
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
        """Return the path of a kind's collection by discovery; None = it is not served here.

        Without a group the core is asked first, then the others in the server's order. What is
        not known is asked for anew once a minute, so that what was installed meanwhile is found.
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

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        """Send one write, once, and say what the server's answer means.

        A dry run goes through admission, quotas and budgets, and stores nothing.
        """
        query: dict[str, object] = {"fieldManager": MANAGER, "fieldValidation": "Strict"}
        if dry_run:
            query["dryRun"] = "All"
        if change.door != "kubernetes":
            raise SourceError(f"{change.door} does not stand behind the door of {self._name}")
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
            return no_answer(str(error))
        return interpret_reply(reply, json_patch=media == JSON_PATCH)


def add_preconditions(change: Change) -> Any:
    """Return a patch's body with the uid and resourceVersion of the object it was meant for."""
    preconditions = {"uid": change.target.uid, "resourceVersion": change.target.resource_version}
    preconditions = {k: v for k, v in preconditions.items() if v}
    if change.content_type == JSON_PATCH:
        # A version that is put in its place is compared by the server: 409 and not a bare 422.
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
    """Open the cluster of a kubeconfig context, else the configured one, and see that it answers.

    Raises:
        SettingsError: no such context, or no configuration at all; the legal ones are named.
        AuthError: the API server does not take our credentials.
        RefusedError: it takes them and lets us read nothing.
        TemporaryError: it cannot be reached.
    """
    context_name = context or settings.actions.context or settings.kubernetes.context
    timeout_s = settings.kubernetes.timeout.total_seconds()
    api = connect_api(context_name, timeout_s=timeout_s, pause=pause)
    client = KubeClient(api, settings.cluster, page=settings.kubernetes.page_size)
    client.get("/version")
    client.collection("Pod", "")
    return client


def _to_error(error: ApiError) -> FallowError:
    if error.code == 401:  # noqa: PLR2004
        return AuthError(str(error), hint="the token has expired, or the context is another's")
    if error.code == 403:  # noqa: PLR2004
        return RefusedError(str(error), hint="`fallow doctor --actions` shows what is missing")
    if error.code == 429 or error.code >= 500:  # noqa: PLR2004
        return TemporaryError(str(error))
    return error
