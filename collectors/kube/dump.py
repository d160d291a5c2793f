"""Import `kubectl get nodes,pods -A -o json`: the same mapping, no API access."""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from collectors.kube.devices import Dra
from collectors.kube.dump_file import read_cut
from collectors.kube.events import build_event_row, find_controller_kind, is_refusal
from collectors.kube.owners import (
    Owners,
    TopOwner,
    build_lookup,
    find_by_labels,
    find_by_template_hash,
    find_controller,
)
from collectors.kube.polls import Polls
from collectors.kube.readable import load_object, prune, read_object, split_items
from collectors.kube.shapes import CustomObject, Event, Meta, Node, Partial, Pod
from collectors.kube.survey import EVENTS, Survey
from collectors.kube.unlisted_pods import UnlistedPods
from fallow.errors import UsageError
from fallow.kube.api_objects import ApiObject
from fallow.kube.owner_chains import split_api_version
from fallow.rejections import Rejection
from fallow.settings.collectors import KubernetesSettings
from fallow.system.input_files import UTF_16
from fallow.tables import Batch

COMMAND = "kubectl get nodes,pods -A -o json > dump.json"
T = TypeVar("T", Partial, Node, Pod, Event, CustomObject)
Row = dict[str, Any]


class KubectlDocument(ApiObject, frozen=True):
    """The output of `kubectl -o json`."""

    kind: str = ""
    api_version: str = ""
    items: list[msgspec.Raw] | None = None


class TypedItem(ApiObject, frozen=True):
    """An item's kind; the items of a typed list (`PodList`) omit it."""

    kind: str = ""
    api_version: str = ""


class Dump:
    """The items of one dump by kind."""

    def __init__(self, path: Path) -> None:
        self.host = str(path)
        self._items: dict[tuple[str, str], list[msgspec.Raw]] = {}
        self.rejections: list[Rejection] = []
        self._listed: set[tuple[str, str, type]] = set()
        document = _read_document(path)
        for item in document.items or ():
            item_type = _read_type(item)
            kind = item_type.kind or document.kind.removesuffix("List")
            group, _ = split_api_version(item_type.api_version or document.api_version)
            self._items.setdefault((group, kind), []).append(item)
        if not self._items.get(("", "Node")) and not self._items.get(("", "Pod")):
            kind_counts = Counter({kind: len(items) for (_, kind), items in self._items.items()})
            counts_text = ", ".join(
                f"{n} {kind or 'nameless'}" for kind, n in kind_counts.most_common(5)
            )
            raise UsageError(
                f"{path} holds no Node and no Pod ({counts_text or 'it is an empty List'})",
                hint=COMMAND,
            )

    def list(
        self,
        path: str,
        shape: type[T],
        *,
        accept: str | None = None,  # noqa: ARG002  (a dump has whole objects)
        query: dict[str, str] | None = None,  # noqa: ARG002
    ) -> Iterator[T]:
        """Yield the objects of a kind that every cluster has."""
        return self._read("", path.rpartition("/")[2], shape)

    def list_custom(self, group: str, plural: str) -> Iterator[CustomObject]:
        """Yield the objects of a kind that the dump may lack."""
        return self._read(group, plural, CustomObject)

    def resolve(self, pod: Meta) -> TopOwner | None:
        """Return the topmost owner of a pod; None = unknown."""
        top = self._owners.top(pod) or find_by_template_hash(pod)
        ref = find_controller(pod)
        if top is not None or ref is None:
            return top
        # What is not in the dump may have owners: only a label says whose it is.
        below = TopOwner(ref.kind, ref.name, None)
        named = find_by_labels(pod, below)
        return None if named == below else named

    @cached_property
    def _owners(self) -> Owners:
        index = {
            (group, kind, item.metadata.namespace, item.metadata.name): item.metadata
            for group, kind in self._items
            for entry in self._items[group, kind]
            if (item := read_object(entry, Partial, lambda _: None)) is not None
        }
        return Owners(build_lookup(index))

    def _read(self, group: str, plural: str, shape: type[T]) -> Iterator[T]:
        """Yield the objects of one kind that can be read; the others are listed once."""
        is_repeated = (group, plural, shape) in self._listed
        self._listed.add((group, plural, shape))
        reject = (lambda _: None) if is_repeated else self.rejections.append
        for (item_group, kind), entries in self._items.items():
            if (item_group, f"{kind.lower()}s") == (group, plural):
                objects = (read_object(item, shape, reject) for item in entries)
                yield from (item for item in objects if item is not None)

    def __len__(self) -> int:
        return sum(map(len, self._items.values()))


class DumpSurvey(Survey):
    """The inventory of a dump: it has all claims and events that somebody asked kubectl for."""

    def _read_claims(self) -> Dra:
        kinds = ("resourceslices", "resourceclaims")
        return Dra(*(self._source.list_custom("resource.k8s.io", kind) for kind in kinds))

    def _events(self) -> Iterator[Row]:
        for event in self._source.list(EVENTS, Event):
            if event.involved_object.kind in {"Pod", "Node"} or is_refusal(event):
                yield build_event_row(event, cluster=self._cluster)
            elif kind := find_controller_kind(event):
                yield {**build_event_row(event, cluster=self._cluster), "kind": kind}


def import_kubectl(
    path: Path, cluster: str, now: datetime, team_labels: Sequence[str] | None = None
) -> Iterator[Batch]:
    """Yield `node`, `pod`, `pending_workload`, `quota` and other rows of one dump.

    Owners are taken from the dump. A ReplicaSet's Deployment is also known by its pods' hash label;
    any other owner that is not in the dump is unknown. Add `replicasets`, `statefulsets`, `jobs`
    and other kinds to the command to name them.

    Raises:
        UsageError: the file cannot be read or is no such dump.
    """
    dump = Dump(path)
    polls = Polls(cluster, lambda: now, "kubectl")
    polls.rejections = dump.rejections
    labels = KubernetesSettings().team_labels if team_labels is None else team_labels
    unlisted = UnlistedPods(cluster)
    survey = DumpSurvey(
        dump, labels, cluster=cluster, clock=lambda: now, polls=polls, unlisted=unlisted
    )
    yield from survey.batches()
    polls.record(str(path), now, len(dump), None)
    yield from polls.report()


def _read_document(path: Path) -> KubectlDocument:
    data = read_cut(path)
    if data[:2] in UTF_16:
        data = data.decode("utf-16", "replace").encode()
    data = data.removeprefix(b"\xef\xbb\xbf").strip()
    if not data:
        raise UsageError(f"{path} is empty", hint=COMMAND)
    try:
        document = _decode(data)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} is JSON, but no List: {error}", hint=COMMAND) from error
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}: {_explain_bad_json(data, error)}", hint=COMMAND) from error
    if not document.kind.endswith("List") or document.items is None:
        description = f"one {document.kind}" if document.kind else "a JSON object"
        if document.kind.endswith("List"):
            raise UsageError(f"{path} holds a {document.kind} without items", hint=COMMAND)
        raise UsageError(f"{path} holds {description}, not a List", hint=COMMAND)
    return document


def _decode(data: bytes) -> KubectlDocument:
    """Return the document; where an item is no JSON or nested too deeply, its items one by one."""
    try:
        return msgspec.json.decode(data, type=KubectlDocument)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError):
        around, elements = split_items(data)
        if not elements:
            raise
    document = msgspec.json.decode(around, type=KubectlDocument)
    return msgspec.structs.replace(document, items=[msgspec.Raw(prune(e)) for e in elements])


def _read_type(item: msgspec.Raw) -> TypedItem:
    try:
        return msgspec.json.decode(item, type=TypedItem)
    except (ValueError, RecursionError):
        document = load_object(bytes(item))
        texts = (document.get(key) for key in ("kind", "apiVersion"))
        return TypedItem(*(text if isinstance(text, str) else "" for text in texts))


def _explain_bad_json(data: bytes, error: msgspec.DecodeError) -> str:
    head = data[:200].lstrip()
    if head.startswith((b"apiVersion:", b"---")):
        return "this is YAML, not JSON: ask kubectl for -o json"
    if head.startswith(b"NAME"):
        return "this is kubectl's table, not JSON: ask kubectl for -o json"
    if head.startswith(b"{") and not data.endswith(b"}"):
        return f"the JSON is cut off after {len(data):,} bytes: was kubectl interrupted?"
    return f"not JSON: {error}"
