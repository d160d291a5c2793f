"""Every signal and veto of a stretch at both sides of its limit, from columns by hand."""

from datetime import timedelta
from typing import Any

import polars as pl
import pytest

from analyzers.idle.evidence import IdleSignals, Judgement
from analyzers.idle.flags import (
    FLAGS,
    add_flags,
    add_judgements,
    add_physics,
    add_recurrence,
)
from fallow.settings.idle import IdleSettings
from warehouse.signals.power_band import IdleBand
from warehouse.signals.runs import MICRO

MINUTE = 60 * MICRO
HOUR = 60 * MINUTE
START = 1000 * HOUR
END = START + 30 * HOUR
SETTINGS = IdleSettings(
    min_duration=timedelta(minutes=60),
    startup_grace=timedelta(minutes=15),
    service_duration=timedelta(hours=24),
    coverage=0.9,
)

STRETCH: dict[str, Any] = {
    "row": 0, "start": START, "end": END, "at": END, "workload_kind": "PyTorchJob",
    "state": "idle", "estimated": False, "spread": False, "agreed": True, "against": False,
    "conflict": False, "stale": False, "steady": 1.0, "coverage": 1.0, "traffic": 0.0,
    "gap": None, "waiting_peer": False, "longest_rest_us": None, "low": False,
    "no_power_sensor": False, "rested_us": END - START, "power_still": False,
}  # fmt: skip
STRETCH_TYPES = {"longest_rest_us": pl.Int64, "gap": pl.String, "traffic": pl.Float64}
PODS: dict[str, Any] = {
    "row": 0, "pod_count": 2, "started_us": START - 10 * HOUR, "pending": False,
    "unresolved": False, "hard": False, "soft": False, "holds": None,
}  # fmt: skip
HOST: dict[str, Any] = {
    "row": 0, "active": False, "cpu_n": 9.0, "served_n": 0.0, "requests_n": 0.0,
    "served_us": None, "pods_cpu": 2, "held_us": None, "pods_net": 2, "pods_requests": 0,
    "unknown_load_us": None,
}  # fmt: skip
SERVERS: dict[str, Any] = {
    "row": 0, "servers_n": 9.0, "busy_n": 0.0, "kernel_n": 100.0, "busy_us": None,
    "unknown_activity_us": None, "last_kernel_us": None, "last_terminal_us": None, "ahead_us": 0,
    "pods": 2,
}  # fmt: skip
TIMES = dict.fromkeys(
    (
        "started_us",
        "served_us",
        "held_us",
        "unknown_load_us",
        "busy_us",
        "unknown_activity_us",
        "last_kernel_us",
        "last_terminal_us",
        "ahead_us",
    ),
    pl.Int64,
)


def frame(row: dict[str, Any], *, empty: bool = False) -> pl.DataFrame:
    known = {name: kind for name, kind in (TIMES | STRETCH_TYPES).items() if name in row}
    table = pl.DataFrame([row], schema_overrides=known)
    return table.clear() if empty else table


def flags(
    stretch: dict[str, Any] | None = None,
    pods: dict[str, Any] | None = None,
    host: dict[str, Any] | None = None,
    servers: dict[str, Any] | None = None,
    *,
    unready: bool = False,
) -> dict[str, Any]:
    """Return the flags of one stretch; `host` and `servers` are absent unless given."""
    flagged = add_flags(
        frame(STRETCH | (stretch or {})),
        SETTINGS,
        pods=frame(PODS | (pods or {}), empty=pods == {}),
        host=frame(HOST | (host or {}), empty=host is None),
        book=frame(SERVERS | (servers or {}), empty=servers is None),
        unready=pl.DataFrame({"row": [0] if unready else []}, schema={"row": pl.Int64}),
    )
    (row,) = add_recurrence(flagged).rows(named=True)
    return row


def raised(row: dict[str, Any]) -> set[str]:
    """Return the names of the vetoes of a row."""
    signals = {"physics", "host", "intent", "no_power_sensor", "power_still"}
    return {name for name in FLAGS if name not in signals and row[name]}


def test_a_quiet_training_job_has_no_veto_and_its_host_is_for_idle() -> None:
    row = flags(host={})
    assert raised(row) == set()
    assert (row["kind"], row["physics"], row["host"], row["intent"]) == (
        "idle_job", True, True, None,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stretch", "veto"),
    [
        ({"conflict": True}, "conflict"),
        ({"stale": True}, "stale"),
        ({"steady": 0.89}, "bursty"),
        ({"coverage": 0.89}, "missing"),
        ({"estimated": True}, "shared_estimated"),
        ({"traffic": 0.11}, "moving"),
        ({"gap": "1 of 2 replicas has no telemetry"}, "unseen"),
        ({"waiting_peer": True}, "waiting_peer"),
        ({"low": True}, "low"),
        ({"longest_rest_us": 20 * HOUR + 1}, "recurrent"),
    ],
)
def test_a_stretch_has_the_veto_of_its_own_column(stretch: dict[str, Any], veto: str) -> None:
    assert raised(flags(stretch)) == {veto}


@pytest.mark.parametrize(
    "stretch",
    [
        {"steady": 0.9},
        {"coverage": 0.9},
        {"traffic": 0.1},
        {"traffic": None},
        {"spread": True},
        {"longest_rest_us": 20 * HOUR},  # 30 hours are half as long again
    ],
)
def test_at_its_limit_a_stretch_has_no_veto(stretch: dict[str, Any]) -> None:
    assert raised(flags(stretch)) == set()


@pytest.mark.parametrize(
    ("stretch", "vetoes"),
    [
        ({"spread": True}, {"unattributed"}),
        ({"gap": "unseen", "waiting_peer": True, "low": True, "longest_rest_us": END}, set()),
        ({"steady": 0.5}, {"bursty"}),
    ],
)
def test_ranks_of_a_job_that_computes_have_the_vetoes_of_their_devices_only(
    stretch: dict[str, Any], vetoes: set[str]
) -> None:
    row = flags({"state": "partly idle", **stretch}, host={}, servers={})
    assert raised(row) == vetoes
    assert (row["kind"], row["host"], row["intent"]) == ("over_allocated_ranks", None, None)
    assert row["physics"] is True


@pytest.mark.parametrize(
    ("pods", "veto"),
    [
        ({"hard": True}, "opt_out"),
        ({"soft": True}, "protected"),
        ({"pending": True}, "not_running"),
        ({"unresolved": True}, "unknown_owner"),
        ({"started_us": END - 75 * MINUTE + 1}, "starting"),
    ],
)
def test_a_pod_has_the_veto_of_its_own_column(pods: dict[str, Any], veto: str) -> None:
    assert raised(flags(pods=pods)) == {veto}


@pytest.mark.parametrize(("ago", "vetoes"), [(HOUR - 1, {"requested"}), (HOUR, set())])
def test_requests_hold_a_stretch_for_the_least_duration(ago: int, vetoes: set[str]) -> None:
    assert raised(flags(host={"held_us": END - ago})) == vetoes


@pytest.mark.parametrize(("ago", "intent"), [(HOUR - 1, None), (HOUR, True)])
def test_what_requests_wait_is_unknown_for_the_least_duration(
    ago: int, *, intent: bool | None
) -> None:
    quiet = {"pods_requests": 2, "requests_n": 9.0, "unknown_load_us": END - ago}
    assert flags(host=quiet)["intent"] is intent


def test_what_holds_a_workload_holds_all_of_it_only() -> None:
    assert raised(flags(pods={"holds": "PDB lab/web"})) == {"on_hold"}
    assert "on_hold" not in raised(flags({"state": "partly idle"}, pods={"holds": "PDB lab/web"}))


def test_a_pod_is_starting_for_the_least_duration_and_the_grace() -> None:
    assert raised(flags(pods={"started_us": END - 75 * MINUTE})) == set()
    assert raised(flags(pods={"started_us": None})) == set()


@pytest.mark.parametrize("pods", [{}, {"pod_count": 0}])
def test_a_stretch_without_pods_has_an_unknown_owner(pods: dict[str, Any]) -> None:
    assert raised(flags(pods=pods)) == {"unknown_owner"}
    assert raised(flags(pods={"pod_count": 0, "pending": True})) == {"unknown_owner"}
    assert raised(flags(pods={"pod_count": 1, "pending": True})) == {"not_running"}


@pytest.mark.parametrize(
    ("at", "vetoes"),
    [(END, {"node_not_ready"}), (END + HOUR, {"node_not_ready"}), (END + HOUR + 1, set())],
)
def test_a_node_that_is_not_ready_is_a_veto_until_an_hour_after_the_stretch(
    at: int, vetoes: set[str]
) -> None:
    assert raised(flags({"at": at}, unready=True)) == vetoes
    assert raised(flags({"at": at})) == set()


@pytest.mark.parametrize(
    ("agreed", "against", "physics"),
    [(True, False, True), (False, True, False), (False, False, None)],
)
def test_physics_is_against_idle_where_one_device_is(
    *, agreed: bool, against: bool, physics: bool | None
) -> None:
    assert flags({"agreed": agreed, "against": against})["physics"] is physics


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ({}, True),
        ({"active": True}, False),
        ({"cpu_n": 1.0}, True),
        ({"cpu_n": 0.0}, None),
        ({"pods_cpu": 1}, None),  # of two pods
        ({"pods_cpu": 3}, True),
        ({"pods_net": 1}, None),  # one is on the host's network
        ({"pods_net": None}, None),
        (None, None),
    ],
)
def test_the_host_speaks_where_all_pods_report_their_cpu_and_network(
    host: dict[str, Any] | None, expected: bool | None
) -> None:
    assert flags(host=host)["host"] is expected
    assert flags({"state": "partly idle"}, host=host)["host"] is None


@pytest.mark.parametrize(
    ("host", "intent"),
    [
        ({}, True),
        ({"served_n": 5.0}, True),  # 5 % of the samples
        ({"served_n": 6.0}, False),
        ({"served_us": END - HOUR}, True),
        ({"served_us": END - HOUR + 1}, False),
        ({"pods_requests": 1}, None),  # of two pods
        ({"pods_requests": 1, "served_n": 6.0}, False),
        ({"pods_requests": 0, "served_n": 6.0}, None),
        ({"pods_requests": 3}, True),
    ],
)
def test_requests_speak_against_idle_from_one_pod_and_for_it_from_all(
    host: dict[str, Any], intent: bool | None
) -> None:
    row = flags(host={"pods_requests": 2, "requests_n": 100.0, **host})
    assert row["intent"] is intent


@pytest.mark.parametrize(
    ("servers", "intent"),
    [
        ({}, True),
        ({"busy_n": 5.0}, True),
        ({"busy_n": 6.0}, False),
        ({"busy_us": END - HOUR}, True),
        ({"busy_us": END - HOUR + 1}, False),
        ({"last_kernel_us": END - HOUR, "last_terminal_us": END - 2 * HOUR}, True),
        ({"last_kernel_us": END - HOUR + 1, "last_terminal_us": END - 2 * HOUR}, None),
        ({"last_kernel_us": END - 2 * HOUR, "last_terminal_us": END - HOUR + 1}, None),
        ({"unknown_activity_us": END - HOUR}, True),
        ({"unknown_activity_us": END - HOUR + 1}, None),
        ({"unknown_activity_us": END, "busy_n": 6.0}, False),
        ({"kernel_n": 0.0}, None),
        ({"kernel_n": 1.0}, True),
        ({"pods": 1}, None),
        ({"pods": 3}, True),
        (None, None),
    ],
)
def test_kernels_speak_for_idle_an_hour_after_the_last_activity(
    servers: dict[str, Any] | None, intent: bool | None
) -> None:
    assert flags(servers=servers)["intent"] is intent
    assert flags({"state": "partly idle"}, servers=servers)["intent"] is None


def test_without_pods_or_requests_nothing_is_said_about_intent() -> None:
    assert flags(pods={}, host={})["intent"] is None
    assert flags(pods={"pod_count": 1}, host={"pods_requests": 1, "requests_n": 9.0})["intent"]


def test_requests_outweigh_kernels() -> None:
    serving = {"pods_requests": 1, "requests_n": 100.0, "served_n": 50.0}
    assert flags(host=serving, servers={})["intent"] is False
    resting = {"pods_requests": 2, "requests_n": 100.0}
    assert flags(host=resting, servers={"busy_n": 50.0})["intent"] is True
    assert flags(host={"pods_requests": 1, "requests_n": 9.0}, servers={})["intent"] is True


@pytest.mark.parametrize(("ahead_us", "skew"), [(30 * MICRO, set()), (30 * MICRO + 1, {"skew"})])
def test_a_clock_may_be_ahead_by_thirty_seconds(ahead_us: int, skew: set[str]) -> None:
    assert raised(flags(servers={"ahead_us": ahead_us})) == skew
    assert raised(flags(servers={"ahead_us": None})) == set()


@pytest.mark.parametrize(
    ("workload_kind", "host", "servers", "kind"),
    [
        ("Deployment", None, None, "idle_workload"),
        ("Deployment", {"pods_requests": 1}, None, "idle_inference"),
        ("Deployment", {"pods_requests": 0}, None, "idle_workload"),
        ("Deployment", None, {"servers_n": 1.0}, "idle_notebook"),
        ("Deployment", None, {"servers_n": 0.0}, "idle_workload"),
        ("Deployment", {"pods_requests": 1}, {"servers_n": 1.0}, "idle_notebook"),
        ("PyTorchJob", {"pods_requests": 1}, {"servers_n": 1.0}, "idle_job"),
        (None, None, None, "idle_workload"),
    ],
)
def test_the_kind_of_a_finding_is_that_of_its_owner_or_of_what_it_serves(
    workload_kind: str | None,
    host: dict[str, Any] | None,
    servers: dict[str, Any] | None,
    kind: str,
) -> None:
    stretch = {"workload_kind": workload_kind}
    assert flags(stretch, host=host, servers=servers)["kind"] == kind
    partly = flags({**stretch, "state": "partly idle"}, host=host, servers=servers)
    assert (partly["kind"], partly["served_kind"]) == ("over_allocated_ranks", kind)


@pytest.mark.parametrize(
    ("workload_kind", "start", "host", "vetoes"),
    [
        ("Deployment", END - 24 * HOUR, None, {"no_request_metrics"}),
        ("Deployment", END - 24 * HOUR + 1, None, {"no_request_metrics", "too_recent"}),
        ("Deployment", END - 24 * HOUR, {"pods_requests": 2, "requests_n": 9.0}, set()),
        ("Deployment", END - 24 * HOUR + 1, {"pods_requests": 2, "requests_n": 9.0},
         {"too_recent"}),
        ("PyTorchJob", END - 2 * HOUR, None, set()),
    ],
)  # fmt: skip
def test_a_service_is_acted_upon_after_a_day_and_with_request_metrics_only(
    workload_kind: str, start: int, host: dict[str, Any] | None, vetoes: set[str]
) -> None:
    row = flags({"workload_kind": workload_kind, "start": start}, host=host)
    assert raised(row) == vetoes


def test_rows_keep_their_own_figures() -> None:
    """Of four rows the first has a host, the second a server, the third neither, the last both."""
    rows = pl.concat([frame(STRETCH | {"row": n}) for n in range(4)])
    four = add_flags(
        rows,
        SETTINGS,
        pods=pl.concat([frame(PODS | {"row": n}) for n in range(4)]),
        host=pl.concat([frame(HOST | {"row": n, "active": n == 3}) for n in (0, 3)]),
        book=pl.concat([frame(SERVERS | {"row": n}) for n in (1, 3)]),
        unready=pl.DataFrame({"row": [2]}),
    ).sort("row")
    assert four["host"].to_list() == [True, None, None, False]
    assert four["intent"].to_list() == [None, True, None, True]
    assert four["node_not_ready"].to_list() == [False, False, True, False]


def test_equal_flags_share_one_judgement() -> None:
    rows = pl.concat([frame(STRETCH | {"row": n}) for n in range(3)])
    flagged = add_flags(
        rows,
        SETTINGS,
        pods=pl.concat([frame(PODS | {"row": n, "hard": n == 1}) for n in range(3)]),
        host=frame(HOST, empty=True),
        book=frame(SERVERS, empty=True),
        unready=pl.DataFrame({"row": []}, schema={"row": pl.Int64}),
    )
    judgements: dict[IdleSignals, Judgement] = {}
    flagged = add_recurrence(flagged)
    assert add_judgements(flagged, judgements)["judgement"].to_list() == [0, 1, 0]
    assert [*judgements] == [IdleSignals(physics=True), IdleSignals(physics=True, opt_out=True)]
    assert [judgement.verdict for judgement in judgements.values()] == ["idle", "unknown"]
    # Another part of the rows: a judgement keeps its number.
    assert add_judgements(flagged[1:], judgements)["judgement"].to_list() == [1, 0]
    assert len(judgements) == 2


PIECE: dict[str, Any] = {
    "k": 0, "gpu_model": "H100", "start": 0, "end": HOUR, "power_w": None, "idle_clock": None,
    "procs": None, "kernel_age_s": None, "traffic": None, "low": None, "changes": 1, "readings": 60,
}  # fmt: skip
FIGURES = dict.fromkeys(
    ("power_w", "idle_clock", "procs", "kernel_age_s", "traffic", "low"), pl.Float64
)
BANDS = [{"H100": IdleBand(100.0, "learned", 9), "A100": IdleBand(60.0, "prior", 0)}, {}]


@pytest.mark.parametrize(
    ("piece", "physics"),
    [
        ({"power_w": 110.0}, True),  # the band and the margin
        ({"power_w": 110.1}, False),
        ({"power_w": 110.1, "procs": 0.0}, False),  # power outweighs the rest
        ({"power_w": 70.0, "gpu_model": "A100"}, True),
        ({"power_w": 71.0, "gpu_model": "A100"}, False),
        ({"power_w": 70.0, "gpu_model": None}, None),
        ({"power_w": 70.0, "k": 1}, None),
        ({}, None),
        ({"procs": 0.0}, True),
        ({"procs": 0.1}, None),
        ({"idle_clock": 0.95}, True),
        ({"idle_clock": 0.94}, None),
        ({"kernel_age_s": 3600.0}, True),
        ({"kernel_age_s": 3599.0}, None),
        ({"kernel_age_s": float("nan")}, None),
        ({"power_w": 110.0, "changes": 0}, None),  # idle, or frozen
        ({"power_w": 110.1, "changes": 0}, False),
        ({"procs": 0.0, "changes": 0}, None),
        ({"procs": 0.0, "changes": 0, "readings": 0}, None),  # no power sensor
        ({"start": HOUR // 2, "kernel_age_s": 1800.0}, True),
    ],
)
def test_physics_of_a_device(piece: dict[str, Any], physics: bool | None) -> None:
    one = pl.DataFrame([PIECE | piece], schema_overrides={**FIGURES, "gpu_model": pl.String})
    assert add_physics(one, BANDS, 10.0)["physics"].to_list() == [physics]


@pytest.mark.parametrize(
    ("low", "power_w", "works"),
    [
        (0.5, 101.1, True),
        (0.5, 101.0, False),
        (0.499, 101.1, False),
        (0.5, None, True),
        (None, 101.1, False),
    ],
)
def test_steady_low_activity_is_work_where_power_is_above_the_band(
    low: float | None, power_w: float | None, *, works: bool
) -> None:
    one = pl.DataFrame([PIECE | {"low": low, "power_w": power_w}], schema_overrides=FIGURES)
    assert add_physics(one, BANDS, 10.0)["works"].to_list() == [works]
