"""Look owners up on a live server: one metadata list per kind, single reads for what is newer."""

import msgspec

from collectors.kube.looks import Looks
from collectors.kube.owners import Absent, Unknown
from collectors.kube.shapes import Meta, Partial
from fallow.kube.api import Api, ApiError
from fallow.kube.discovery import Discovery
from fallow.kube.pages import PARTIAL, Listing
from fallow.kube.shapes import Page
from fallow.protections import named

_pages = msgspec.json.Decoder(Page[Partial])
_ONE = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_NOT_FOUND = 404


class LiveLookup:
    """Metadata of owners by group, kind, namespace and name."""

    def __init__(self, api: Api, discovery: Discovery, looks: Looks, *, limit: int) -> None:
        self._api, self._discovery, self._looks, self._limit = api, discovery, looks, limit
        self._listed: dict[tuple[str, str], dict[tuple[str, str], Meta] | None] = {}

    def __call__(self, group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        """Return one object's metadata.

        Raises:
            Absent: the kind is not served, or there is no such object.
            Unknown: we may not read this kind.
        """
        try:
            resource = self._discovery.resource(group, kind, version)
            root = self._discovery.root(group, version)
        except ApiError as error:
            raise Unknown from error
        if resource is None or root is None:
            raise Absent
        inside = namespace if resource.namespaced else ""
        index = self._index(group, kind, f"{root}/{resource.name}")
        if index is None:
            raise Unknown
        found = index.get((inside, name))
        if found is None:
            within = f"/namespaces/{inside}" if inside else ""
            found = self._read(f"{root}{within}/{resource.name}/{name}")
            index[inside, name] = found
        return found

    def _index(self, group: str, kind: str, path: str) -> dict[tuple[str, str], Meta] | None:
        if (group, kind) not in self._listed:
            index: dict[tuple[str, str], Meta] = {}
            with self._looks.look(f"{self._api.host}{path}") as look:
                for page in Listing(self._api, path, _pages, limit=self._limit, accept=PARTIAL):
                    look.samples += len(page)
                    for item in page:
                        meta = _without_words(item.metadata)
                        index[meta.namespace, meta.name] = meta
            self._listed[group, kind] = None if look.failed else index
        return self._listed[group, kind]

    def _read(self, path: str) -> Meta:
        try:
            body = self._api.get(path, accept=_ONE)
            return _without_words(msgspec.json.decode(body, type=Partial).metadata)
        except ApiError as error:
            raise (Absent if error.code == _NOT_FOUND else Unknown) from error
        except msgspec.DecodeError as error:
            raise Unknown from error


def _without_words(meta: Meta) -> Meta:
    """Drop labels and annotations that protect nothing: they are most of the size."""
    words = named(meta.labels, meta.annotations)
    return msgspec.structs.replace(meta, labels=None, annotations=words or None)
