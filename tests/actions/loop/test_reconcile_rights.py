"""`fallow reconcile` reads within the reader's role and the rights in Fallow's own namespace."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actions.journal import Journal, JournalState
from actions.loop.annotate import ANNOTATION_KEYS
from actions.loop.freeze import Freeze
from actions.loop.marks import reconcile_marks
from actions.reclaim.kinds import read_kinds
from actions.rights import OWN
from fallow.errors import RefusedError
from fallow.settings.actions import LeaseSettings
from runtime.operations.acting.access_review import list_reader_rights
from simulator.kube.paths import parse_path
from tests.actions.places import Place, serving
from tests.actions.reclaim.examples import replicated

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
MARK = {"annotations": {ANNOTATION_KEYS[0]: "a1"}}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serving("stand-in", tmp_path) as (kube, server):
        yield Place(kube, server)


@pytest.fixture
def record(tmp_path: Path) -> Iterator[JournalState]:
    with Journal.open(tmp_path / "journal.sqlite", lambda: NOW, actor="ann") as journal:
        yield JournalState(journal).catch_up()


def requested(place: Place) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of every request but discovery's."""
    assert place.server is not None
    verbs = set()
    for request in place.server.requests:
        parts = [part for part in request.path.split("/") if part]
        if len(parts) <= (3 if parts[0] == "apis" else 2):
            continue
        target = parse_path(place.server.store.catalog, request.path)
        reads = "get" if target.name else "list"
        verb = {"GET": reads, "POST": "create", "PATCH": "patch"}[request.method]
        verbs.add((target.kind.group, target.resource, verb))
    return verbs


def test_reconcile_and_thaw_stay_within_the_readers_role_and_fallows_own(
    place: Place, record: JournalState
) -> None:
    place.make("Deployment", {"metadata": {"name": "x", **MARK}, "spec": replicated()})
    place.make("Node", {"metadata": {"name": "n1", **MARK}})
    assert place.server is not None
    place.server.requests.clear()
    lease = LeaseSettings()

    result = reconcile_marks(record, place.door, lease)
    place.server.store.create("Namespace", {"metadata": {"name": lease.namespace}})
    freeze = Freeze(
        record,
        place.door,
        file=Path(record.journal.path).with_name("FREEZE"),
        namespace=lease.namespace,
        configmap="fallow-freeze",
    )
    assert freeze.freeze("a restored home", "ann") == []
    assert freeze.thaw("ann") == []

    assert {mark.kind for mark in result.missing} == {"Deployment", "Node"}
    granted = {(r.group, r.resource, v) for r in (*list_reader_rights(), *OWN) for v in r.verbs}
    sent = requested(place)
    assert sent <= granted, sorted(sent - granted)
    listed = {resource for _, resource, verb in sent if verb == "list"}
    assert len(listed) >= len({k.api_kind for k in read_kinds().values() if k.switch != "hub"})


def test_a_kind_that_may_not_be_listed_is_named_and_nothing_is_recorded(
    place: Place, record: JournalState
) -> None:
    assert place.server is not None
    place.server.access.deny("list", "notebooks")
    with pytest.raises(RefusedError, match="Notebook may not be listed"):
        reconcile_marks(record, place.door, LeaseSettings())
    assert record.journal.entries() == []
