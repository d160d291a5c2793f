"""Of the series of one object only the newest are current, whatever the order of an answer."""

from datetime import UTC, datetime, timedelta

import pytest

from collectors.prometheus.kube_state import find_changes
from collectors.prometheus.newest import Rows, SeriesRow, query_rows, split_past
from fallow.window import Window

END = datetime(2026, 11, 29, 12, tzinfo=UTC)
WINDOW = Window(END - timedelta(hours=6), END)
INFO = "kube_node_info"
FACTS = {
    "kube_node_spec_taint": {"key": "k", "effect": "NoSchedule"},
    "kube_node_labels": {"label_pool": "p"},
    "kube_node_status_condition": {"condition": "Ready", "status": "true"},
    "kube_node_status_allocatable": {"resource": "nvidia_com_gpu"},
}


def seen(minutes_ago: float) -> float:
    return (END - timedelta(minutes=minutes_ago)).timestamp()


def row(minutes_ago: float, value: float = 1, **labels: str) -> SeriesRow:
    return SeriesRow({"node": "a", **labels}, value, seen(minutes_ago))


@pytest.mark.parametrize("metric", FACTS)
def test_a_fact_of_a_node_that_was_seen_later_without_it_is_past(metric: str) -> None:
    fact = row(40, 1, **FACTS[metric])
    current, past = split_past({metric: [fact], INFO: [row(1)]}, END)
    assert (current[metric], past[metric]) == ([], [fact[:2]])
    current, _ = split_past({metric: [fact], INFO: [row(40)]}, END)
    assert current[metric] == [fact[:2]]


@pytest.mark.parametrize("backwards", [False, True])
def test_the_newest_of_different_values_comes_last(backwards: bool) -> None:
    rows = [row(4, label_team="a"), row(2, label_team="b"), row(60, label_team="c")]
    rows = rows[::-1] if backwards else rows
    current, past = split_past({"kube_node_labels": rows}, END)
    assert [labels["label_team"] for labels, _ in current["kube_node_labels"]] == ["a", "b"]
    assert [labels["label_team"] for labels, _ in past["kube_node_labels"]] == ["c"]


def test_objects_are_judged_one_by_one() -> None:
    other = SeriesRow({"exported_node": "b", "node": "scraper"}, 1, seen(90))
    current, _ = split_past({"kube_node_labels": [row(1), other], INFO: [row(1)]}, END)
    assert current["kube_node_labels"] == [other[:2], row(1)[:2]]


@pytest.mark.parametrize(("last_min", "is_current"), [(30, True), (0, False)])
def test_what_no_step_saw_is_the_end_of_an_object_that_ended(
    last_min: float, is_current: bool
) -> None:
    pod = {"namespace": "ml", "pod": "p", "uid": "u"}
    info, short = SeriesRow(pod, 1, seen(last_min)), SeriesRow(pod, 5, 0)
    metric = "kube_pod_completion_time"
    current, past = split_past({"kube_pod_info": [info], metric: [short]}, END)
    assert (len(current[metric]), len(past[metric])) == (int(is_current), int(not is_current))


def test_times_are_requested_in_parts_that_a_server_can_hold(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("collectors.prometheus.newest.MOST_TIMES", 72)
    expressions: list[tuple[str, float]] = []

    def query(expression: str, window: Window) -> Rows:
        expressions.append((expression, window.seconds / 60))
        if expression.startswith("last_over_time"):
            return [({"__name__": "m", "node": node}, 1.0) for node in "ab"]
        name = "a" if len(expressions) == 2 else "b"
        return [({"node": name}, window.end.timestamp())]

    rows = query_rows(query, "m", " == 1", WINDOW)
    assert [(r.labels["node"], r.newest) for r in rows] == [("a", seen(180)), ("b", seen(0))]
    times = "timestamp(m) or max_over_time(timestamp(m)[$span:300s])"
    assert expressions == [("last_over_time(m[$span]) == 1", 360), (times, 180), (times, 180)]
    expressions.clear()
    assert query_rows(lambda _e, _w: [], "m", "", WINDOW) == []


@pytest.mark.parametrize(
    ("metric", "then", "now", "changed"),
    [
        (INFO, {"system_uuid": "u"}, {"system_uuid": "v"}, True),
        (INFO, {"instance": "one"}, {"instance": "two"}, False),  # kube-state-metrics restarted
        ("kube_node_labels", {"label_eks_amazonaws_com_nodegroup": "blue"}, {}, True),
        ("kube_node_labels", {"label_nvidia_com_gfd_timestamp": "1"}, {}, False),
    ],
)
def test_a_node_changed_when_its_uid_or_a_label_that_prices_or_attributes_did(
    metric: str, then: dict[str, str], now: dict[str, str], changed: bool
) -> None:
    series = {metric: [row(1, 1, **now), row(90, 1, **then)]}
    expected = {"a": {END - timedelta(minutes=90)}} if changed else {}
    assert find_changes(series) == expected
