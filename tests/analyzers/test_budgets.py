"""Disruption budgets: which pods one covers, when one is known, and that no plan breaks one."""

import json
from datetime import timedelta
from typing import Any

import pytest

from fallow.window import Window
from tests.analyzers.conftest import START, Memory
from warehouse.disruption_budgets import DisruptionBudgets


def budget(name: str = "b", *, hours: float = 24, **more: Any) -> dict[str, Any]:
    selector = json.dumps({"matchLabels": {"app": "web"}})
    seen = START.replace(tzinfo=None) + timedelta(hours=hours)
    row = {"cluster": "c", "namespace": "ns", "name": name, "last_seen": seen}
    return {**row, "selector": selector, "max_unavailable": "1", "disruptions_allowed": 1, **more}


def read(views: Memory, *budgets: dict[str, Any], looked: bool = False) -> DisruptionBudgets:
    end = START + timedelta(hours=24)
    views.rows("pod", [{"cluster": "c", "uid": "p", "last_seen": end.replace(tzinfo=None)}])
    views.rows("disruption_budget", budgets)
    target = "https://c/apis/policy/v1/poddisruptionbudgets"
    seen = {"cluster": "c", "ts": (end - timedelta(minutes=2)).replace(tzinfo=None)}
    if looked:
        views.rows("scrape", [{**seen, "collector": "kubernetes", "target": target, "up": True}])
    return DisruptionBudgets.read(views, Window(START, end))


def names(
    found: DisruptionBudgets,
    cluster: str = "c",
    namespace: str = "ns",
    labels: str = '{"app": "web"}',
) -> list[str]:
    return [b.name for b in found.of(cluster, namespace, labels)]


def test_a_budget_covers_pods_of_its_own_namespace_and_labels(views: Memory) -> None:
    found = read(views, budget(), budget("gone", hours=22), budget("none", selector=None))
    assert names(found) == ["b"]
    assert names(found, "c", "other") == names(found, "d", "ns") == names(found, labels="{}") == []
    (one,) = found.of("c", "ns", '{"app": "web"}')
    assert (one.id, one.wants, one.allowed) == ("ns/b", "maxUnavailable 1", 1)


@pytest.mark.parametrize(
    ("rows", "looked", "known"), [([], False, False), ([], True, True), ([budget()], False, True)]
)
def test_that_no_budget_is_there_is_known_only_where_somebody_looked(
    views: Memory, rows: list[dict[str, Any]], looked: bool, known: bool
) -> None:
    assert read(views, *rows, looked=looked).is_polled("c") is known


@pytest.mark.parametrize(("polls", "is_kept"), [([True, False], True), ([False, True], False)])
def test_a_budget_is_deleted_where_a_poll_that_read_all_has_it_not(
    views: Memory, polls: list[bool], *, is_kept: bool
) -> None:
    end = START + timedelta(hours=24)
    target = "https://c/apis/policy/v1/poddisruptionbudgets"
    for minutes, up in zip((40, 5), polls, strict=True):
        ts = (end - timedelta(minutes=minutes)).replace(tzinfo=None)
        row = {"cluster": "c", "collector": "kubernetes", "target": target, "ts": ts, "up": up}
        views.rows("scrape", [row])
    found = read(views, budget(hours=20))
    assert names(found) == ["b"] * is_kept
    assert found.is_unread("c") is is_kept
    assert found.is_unread("d") is False, "nobody polled them"


@pytest.mark.parametrize(
    ("polls", "is_known"),
    [
        ([(2, True, 0)], True),
        ([(2, False, 0)], False),
        ([(2, True, 1)], False),
        ([(3, False, 0), (2, True, 0)], True),
        ([(3, True, 0), (2, False, 0)], False),
        ([(60, True, 0)], True),
        ([(61, True, 0)], False),
    ],
)
def test_budgets_are_known_where_the_last_poll_of_the_hour_read_all_of_them(
    views: Memory, polls: list[tuple[int, bool, int]], is_known: bool
) -> None:
    end = START + timedelta(hours=24)
    target = "https://c/apis/policy/v1/poddisruptionbudgets"
    row = {"cluster": "c", "collector": "kubernetes", "target": target}
    for minutes, up, rejected in polls:
        ts = (end - timedelta(minutes=minutes)).replace(tzinfo=None)
        views.rows("scrape", [{**row, "ts": ts, "up": up, "rejected": rejected}])
    budgets = DisruptionBudgets.read(views, Window(START, end))
    assert budgets.is_polled("c") is is_known
    assert budgets.count("c", "ns", ["{}"]) == (() if is_known else None)
