"""Watches: what they tell, when they end, and how they say that history is gone."""

import threading
from typing import Any

from tests.simulator.kube.conftest import Kube, Space

MAPS = "configmaps"
Object = dict[str, Any]


def make(space: Space, name: str, **labels: str) -> str:
    return space.create(MAPS, {"metadata": {"name": name, "labels": labels}}).version


def told(events: list[Object]) -> list[tuple[str, str]]:
    return [(e["type"], e["object"]["metadata"].get("name", "")) for e in events]


def test_a_watch_goes_on_from_a_version(kube: Kube, space: Space) -> None:
    make(space, "before")
    since = make(space, "a")
    make(space, "b")
    space.patch(MAPS, "a", {"data": {"x": "y"}})
    space.ask("DELETE", space.path(MAPS, "b"))
    events = kube.watch(space.path(MAPS), 3, resourceVersion=since)
    assert told(events) == [("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "b")]
    versions = [int(e["object"]["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(versions)
    assert events[0]["object"]["kind"] == "ConfigMap"


def test_a_watch_ends_when_its_time_is_over(kube: Kube, space: Space) -> None:
    since = make(space, "a")
    query = {"watch": "true", "timeoutSeconds": "1", "resourceVersion": since}
    answer = kube.ask("GET", space.path(MAPS), **query)
    assert (answer.code, answer.raw) == (200, b"")


def test_a_watch_without_a_version_tells_first_what_is_there(kube: Kube, space: Space) -> None:
    make(space, "a")
    assert told(kube.watch(space.path(MAPS), 1)) == [("ADDED", "a")]


def test_a_change_while_watching_is_told(kube: Kube, space: Space) -> None:
    since = make(space, "a")
    late = threading.Timer(0.3, make, (space, "late"))
    late.start()
    events = kube.watch(space.path(MAPS), 1, resourceVersion=since)
    late.join()
    assert told(events) == [("ADDED", "late")]


def test_objects_leave_and_enter_a_selection(kube: Kube, space: Space) -> None:
    make(space, "a", team="x")
    since = make(space, "b", team="y")
    space.patch(MAPS, "a", {"metadata": {"labels": {"team": "y"}}})
    space.patch(MAPS, "b", {"metadata": {"labels": {"team": "x"}}})
    space.patch(MAPS, "b", {"data": {"c": "d"}})
    events = kube.watch(space.path(MAPS), 3, resourceVersion=since, labelSelector="team=x")
    assert told(events) == [("DELETED", "a"), ("ADDED", "b"), ("MODIFIED", "b")]


def test_a_watch_from_what_is_forgotten_ends_with_an_error(kube: Kube, space: Space) -> None:
    since = make(space, "a")
    make(space, "b")
    kube.compact(int(make(space, "c")))
    (event,) = kube.watch(space.path(MAPS), 2, resourceVersion=since)
    assert event["type"] == "ERROR"
    assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
