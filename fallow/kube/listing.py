"""List whole collections page by page, also when a continue token expires."""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from fallow.errors import UNREADABLE_JSON, SourceError
from fallow.kube.api import ApiConnection, ApiError
from fallow.kube.api_objects import ListMeta, Page

T = TypeVar("T")

RESTARTS = 3
"""How often a list is started again when its token expires without a fresh one."""

MOST_PAGES = 20_000
"""Pages of one list: 10 million objects of 500 a page."""

EXPIRED = 410
PARTIAL = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"


class Decoder(Protocol[T]):
    """Decodes the pages of a list."""

    def decode(self, body: bytes, /) -> Page[T]:
        """Return a page; raise msgspec.DecodeError where the body is none."""
        ...


class Listing(Generic[T]):
    """One LIST in pages of `limit` objects; `resource_version` is where a watch may begin.

    An expired continue token (HTTP 410) comes with a fresh one that continues in a newer snapshot:
    objects before that position may be older. A watch must therefore begin at the first page's
    version, which `resource_version` is.
    """

    def __init__(
        self,
        api: ApiConnection,
        path: str,
        decoder: Decoder[T],
        *,
        limit: int,
        accept: str | None = None,
        query: dict[str, str] | None = None,
    ) -> None:
        self._api, self._path, self._decoder = api, path, decoder
        self._limit, self._query = limit, query or {}
        self._accept = {} if accept is None else {"accept": accept}
        self.resource_version = ""
        self.restarts = 0
        self.refreshed = 0
        self.objects = 0

    def __iter__(self) -> Iterator[list[T]]:
        """Yield pages; after a restart objects are repeated.

        Raises:
            ApiError: the server refused, or the list expired more than `RESTARTS` times.
            SourceError: a page is not what the API promises.
            TemporaryError: no answer.
        """
        token: str | None = None
        pages = 0
        while True:
            query = {**self._query, "limit": self._limit, "continue": token}
            try:
                body = self._api.get(self._path, query, **self._accept)
            except ApiError as error:
                if error.code != EXPIRED or self.restarts + self.refreshed >= RESTARTS:
                    raise
                token = error.token
                if token:
                    self.refreshed += 1
                else:
                    self.restarts += 1
                    self.resource_version = ""
                    self._api.pause(self.restarts)
                continue
            page = self._decode(body)
            self.resource_version = self.resource_version or page.metadata.resource_version
            items = page.items or []
            self.objects += len(items)
            if items:
                yield items
            token = _get_token(page.metadata)
            if token is None:
                return
            pages += 1
            if pages > MOST_PAGES:
                raise SourceError(f"{self._api.host}{self._path}: a list without end")

    def _decode(self, body: bytes) -> Page[T]:
        try:
            return self._decoder.decode(body)
        except UNREADABLE_JSON as error:
            raise SourceError(f"{self._api.host}{self._path}: not a list: {error}") from error


def _get_token(metadata: ListMeta) -> str | None:
    return metadata.continue_ or None
