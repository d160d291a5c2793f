"""Look up owners on a live server: one metadata list per kind, single reads for newer objects."""

import msgspec

from collectors.kube.owners import AbsentOwnerError
from collectors.kube.polls import Polls
from collectors.kube.readable import PageDecoder, read_object
from collectors.kube.shapes import Meta, Partial
from fallow.kube.api import ApiConnection, ApiError
from fallow.kube.discovery import Discovery
from fallow.kube.listing import PARTIAL, Listing
from fallow.kube.owner_chains import UnknownOwnerError

_SINGLE_READ = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_NOT_FOUND = 404


class LiveLookup:
    """Metadata of owners by group, kind, namespace and name."""

    def __init__(
        self, api: ApiConnection, discovery: Discovery, polls: Polls, *, limit: int
    ) -> None:
        self._api, self._discovery, self._polls, self._limit = api, discovery, polls, limit
        self._listed: dict[tuple[str, str], dict[tuple[str, str], Meta] | None] = {}

    def __call__(self, group: str, kind: str, namespace: str, name: str, version: str) -> Meta:
        """Return one object's metadata.

        Raises:
            Absent: the kind is not served, or there is no such object.
            Unknown: we have no permission to read this kind.
        """
        try:
            resource = self._discovery.resource(group, kind, version)
            root = self._discovery.root(group, version)
        except ApiError as error:
            raise UnknownOwnerError from error
        if resource is None or root is None:
            raise AbsentOwnerError
        inside = namespace if resource.namespaced else ""
        index = self._index(group, kind, f"{root}/{resource.name}")
        if index is None:
            raise UnknownOwnerError
        metadata = index.get((inside, name))
        if metadata is None:
            within = f"/namespaces/{inside}" if inside else ""
            metadata = self._read(f"{root}{within}/{resource.name}/{name}")
            index[inside, name] = metadata
        return metadata

    def _index(self, group: str, kind: str, path: str) -> dict[tuple[str, str], Meta] | None:
        if (group, kind) not in self._listed:
            index: dict[tuple[str, str], Meta] = {}
            with self._polls.begin(f"{self._api.host}{path}") as poll:
                pages = PageDecoder(Partial, poll.reject)
                for page in Listing(self._api, path, pages, limit=self._limit, accept=PARTIAL):
                    poll.samples += len(page)
                    for item in page:
                        meta = _drop_labels(item.metadata)
                        index[meta.namespace, meta.name] = meta
            self._listed[group, kind] = None if poll.failed else index
        return self._listed[group, kind]

    def _read(self, path: str) -> Meta:
        try:
            body = self._api.get(path, accept=_SINGLE_READ)
        except ApiError as error:
            raise (AbsentOwnerError if error.code == _NOT_FOUND else UnknownOwnerError) from error
        item = read_object(body, Partial, self._polls.rejections.append)
        if item is None:
            raise UnknownOwnerError
        return _drop_labels(item.metadata)


def _drop_labels(meta: Meta) -> Meta:
    """Remove labels and annotations that protect nothing: they are most of the size."""
    return msgspec.structs.replace(meta, labels=None, annotations=meta.protections or None)
