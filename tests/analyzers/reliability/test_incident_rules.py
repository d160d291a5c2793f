"""The rules of incidents by hand: application XIDs, contradictions, ranked causes, fusion."""

import json
from datetime import datetime, timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyzers.reliability.incidents.device_signals import (
    find_failed_holders,
    list_counter_signals,
    list_xid_signals,
)
from analyzers.reliability.incidents.fusion import fuse_signals
from analyzers.reliability.incidents.judge import judge, judge_signals, rank_causes
from analyzers.reliability.incidents.process_signals import (
    list_event_signals,
    list_process_signals,
)
from analyzers.reliability.incidents.records import ANOTHERS, Signal
from analyzers.reliability.incidents.rows import (
    EndedProcess,
    IncidentEvent,
    XidChange,
    read_counter_growth,
    read_xid_changes,
)
from analyzers.reliability.incidents.tables import (
    Contradiction,
    get_xid_signal,
    read_cause_signals,
    read_contradictions,
    read_event_signals,
    read_exit_signals,
    read_message_signals,
    read_steps,
)
from analyzers.workload_rows import Owner
from collectors.kube.events import read_controller_reasons
from tests.analyzers.conftest import Memory

AT = datetime(2026, 11, 2, 12)  # noqa: DTZ001  (tables hold naive UTC)
NAMES = sorted({row.signal for row in read_cause_signals()})
OWNERS: dict[tuple[str, str, str], Owner] = {
    ("c", "ml", f"{job}-{n}"): ("c", "ml", "PyTorchJob", job) for job in "abc" for n in range(2)
}


def xid(code: int, pod: str, device: str = "GPU-0", hours: float = 0.0) -> XidChange:
    return XidChange(
        cluster="c", device=device, at=AT + timedelta(hours=hours), node="n", namespace="ml",
        pod=pod, code=code, older=False,
    )  # fmt: skip


def suspects(*xids: XidChange) -> bool:
    names = [signal.name for signal in list_xid_signals(xids, OWNERS)]
    return "xid_application_workloads" in names


def step_of(*names: str, has_checkpoint: bool = True, runs_again: bool = False) -> str:
    return judge(names, has_checkpoint=has_checkpoint, runs_again=runs_again).step


@pytest.mark.parametrize(
    ("xids", "suspect"),
    [
        ([xid(31, "a-0"), xid(13, "b-0", hours=23.9)], True),
        ([xid(31, "a-0"), xid(13, "b-0", hours=24.1)], False),
        ([xid(31, "a-0"), xid(13, "a-1", hours=1)], False),
        ([xid(31, "a-0"), xid(13, "b-0", "GPU-1", 1)], False),
        # A program with the same error on two boards explains its own.
        ([xid(31, "a-0"), xid(31, "a-1", "GPU-1"), xid(13, "b-0", hours=1)], False),
        ([xid(31, "a-0"), xid(79, "b-0", hours=1)], False),
    ],
)
def test_a_board_is_suspect_from_two_workloads_within_a_day(
    xids: list[XidChange], *, suspect: bool
) -> None:
    assert suspects(*xids) is suspect


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 69])
def test_an_application_xid_never_recycles_by_itself(code: int) -> None:
    assert get_xid_signal(code) == "xid_application"
    assert step_of("xid_application", "process_failed") == "restart in place"
    assert step_of("xid_application") == "hold"
    assert step_of("xid_application", "process_failed", "xid_application_workloads") == (
        "recycle the node"
    )


HARDWARE = {
    "xid_off_bus", "device_gone", "remap_failed", "xid_application_workloads", "node_not_ready",
    "node_rebooted", "pods_lost", "kernel_problem", "gpu_missing",
}  # fmt: skip


@given(st.sets(st.sampled_from([name for name in NAMES if name not in HARDWARE])))
def test_no_evidence_without_hardware_or_nodes_recycles_a_node(names: set[str]) -> None:
    assert judge(names, has_checkpoint=True, runs_again=False).remedy != "recycle the node"


@given(
    names=st.sets(st.sampled_from(NAMES)),
    contradiction=st.sampled_from(read_contradictions()),
    runs_again=st.booleans(),
)
def test_contradicting_evidence_always_holds(
    names: set[str], contradiction: Contradiction, *, runs_again: bool
) -> None:
    result = names | {contradiction.signal} | ({contradiction.other} - {""})
    verdict = judge(result, has_checkpoint=True, runs_again=runs_again)
    assert (verdict.cause, verdict.step) == ("unknown", "hold")
    assert contradiction.why in verdict.holds


@given(
    names=st.sets(st.sampled_from(NAMES)), has_checkpoint=st.booleans(), runs_again=st.booleans()
)
def test_a_hold_has_a_reason_and_a_step_is_its_causes(
    names: set[str], *, has_checkpoint: bool, runs_again: bool
) -> None:
    verdict = judge(names, has_checkpoint=has_checkpoint, runs_again=runs_again)
    assert (verdict.step == "hold") is bool(verdict.holds)
    if verdict.step != "hold":
        row = read_steps()[verdict.cause]
        assert verdict.step in {row.step, row.otherwise}
        assert runs_again <= (row.target != "workload")


def list_reachable(*, has_checkpoint: bool) -> set[tuple[str, str]]:
    """Return the causes and remedies of all sets of signals that speak for one cause."""
    signals: dict[str, list[str]] = {}
    for row in read_cause_signals():
        signals.setdefault(row.cause, []).append(row.signal)
    verdicts = (
        judge(names, has_checkpoint=has_checkpoint, runs_again=False)
        for theirs in signals.values()
        for size in range(1, len(theirs) + 1)
        for names in combinations(theirs, size)
    )
    return {(verdict.cause, verdict.remedy) for verdict in verdicts}


def test_every_cause_and_every_step_of_the_tables_can_be_reached() -> None:
    steps = read_steps().values()
    assert {(row.cause, row.step) for row in steps} <= list_reachable(has_checkpoint=True)
    assert {(row.cause, row.otherwise or row.step) for row in steps} <= list_reachable(
        has_checkpoint=False
    )


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        # pcie link 2 + 1 + 1; off the bus 1 + 1 + 1 has nothing of its own.
        ({"pcie_replay_growth", "process_failed", "message_nccl_timeout"}, "pcie link"),
        # off the bus 3 + 1 + 1 + 1 against 2 + 1 + 1
        (
            {"xid_off_bus", "pcie_replay_growth", "process_failed", "message_nccl_timeout"},
            "gpu off the bus",
        ),
        # gpu memory 3 + 1; of the contained error (3 + 2) only such errors show 3.
        ({"xid_double_bit", "process_failed", "xid_contained"}, "unknown"),
        # gpu memory 4 + 1 against these 3
        ({"xid_memory", "process_failed", "xid_contained"}, "gpu memory"),
        # The hang (5) is explained by the reset that the driver asks for (4 + 1).
        ({"xid_reset", "stall_confirmed"}, "gpu reset needed"),
    ],
)
def test_a_rival_has_evidence_of_its_own_and_of_another_depth_what_only_it_shows(
    names: set[str], cause: str
) -> None:
    assert judge(names, has_checkpoint=True, runs_again=False).cause == cause


def test_weights_add_up_and_a_cause_has_to_lead_by_two() -> None:
    [memory, *_] = rank_causes({"oom_killed", "restarts_repeated"})
    assert (memory.cause, memory.weight) == ("memory limit", 2 + 3)
    assert step_of("oom_killed", "restarts_repeated") == "tell the owner"
    # node memory: 4 + 1, memory limit: 2 + 3
    assert step_of("oom_killed", "restarts_repeated", "system_oom") == "hold"
    # node lost: 2 + 2, network partition: 1 + 1
    assert step_of("node_not_ready", "pods_lost") == "recycle the node"


def test_a_rerun_needs_a_checkpoint_and_a_job_that_does_not_run_again_by_itself() -> None:
    assert step_of("stall_confirmed") == "rerun from the checkpoint"
    assert step_of("stall_confirmed", has_checkpoint=False) == "tell the owner"
    assert step_of("spot_notice", has_checkpoint=False) == "restart elsewhere"
    assert step_of("spot_notice", runs_again=True) == "hold"
    assert step_of("xid_off_bus", "process_failed", runs_again=True) == "recycle the node"


def test_a_symptom_yields_to_what_explains_it() -> None:
    assert step_of("message_nccl_timeout", "process_failed") == "rerun from the checkpoint"
    assert step_of("message_nccl_timeout", "process_failed", "xid_reset") == "reset the GPU"
    assert step_of("stall_confirmed", "xid_off_bus") == "recycle the node"


def test_the_tables_agree() -> None:
    assert {row.cause for row in read_cause_signals()} == set(read_steps())
    result = {row.signal for row in read_event_signals()} | {
        row.signal for row in read_message_signals()
    }
    result |= set(read_exit_signals().values())
    assert result - ANOTHERS <= set(NAMES)
    events = {(row.kind, row.reason) for row in read_event_signals()}
    stored = {(kind, reason) for (_, reason), kind in read_controller_reasons().items()}
    assert stored == {pair for pair in events if pair[0] not in {"Node", "Pod"}}
    pairs = [(row.cause, row.signal) for row in read_cause_signals()]
    assert len(pairs) == len(set(pairs))
    for cause in read_steps():
        classes = {(r.class_, r.symptom) for r in read_cause_signals() if r.cause == cause}
        assert len(classes) == 1, cause


def signal(name: str, minutes: float, **where: object) -> Signal:
    at = AT + timedelta(minutes=minutes)
    return Signal(name, at, at, at, "c", "", "event", **where)  # type: ignore[arg-type]


def groups(*signals: Signal) -> list[set[str]]:
    return [{s.name for s in group} for group in fuse_signals(signals)]


def test_signals_of_one_job_are_one_incident_while_they_are_near() -> None:
    a, b = OWNERS["c", "ml", "a-0"], OWNERS["c", "ml", "b-0"]
    first, near = signal("process_failed", 0, owner=a), signal("oom_killed", 10, owner=a)
    assert groups(first, near) == [{"process_failed", "oom_killed"}]
    assert len(groups(first, signal("oom_killed", 10.1, owner=a))) == 2
    assert len(groups(first, signal("oom_killed", 0, owner=b))) == 2


def test_all_workloads_of_a_node_that_goes_away_are_one_incident() -> None:
    lost = signal("node_not_ready", 0, node="n-0")
    a = signal("pods_lost", 6, owner=OWNERS["c", "ml", "a-0"], node="n-0")
    b = signal("process_failed", 6, owner=OWNERS["c", "ml", "b-0"], node="n-0")
    other = signal("oom_killed", 6, owner=OWNERS["c", "ml", "c-0"], node="n-1")
    assert groups(lost, a, b, other) == [
        {"node_not_ready", "pods_lost", "process_failed"},
        {"oom_killed"},
    ]


def test_a_long_signal_keeps_its_place_in_a_chain_while_shorter_ones_end() -> None:
    a = OWNERS["c", "ml", "a-0"]
    long = Signal("straggler", AT, AT + timedelta(hours=2), AT, "c", "", "event", owner=a)
    short, late = signal("oom_killed", 5, owner=a), signal("process_failed", 129, owner=a)
    assert groups(long, short, late) == [{"straggler", "oom_killed", "process_failed"}]


@pytest.mark.parametrize(
    ("shown", "failed", "holder"),
    [
        (2, 1, "a-0"),  # the scrape comes a minute after the pod's end
        (10, 1, "a-0"),
        (11, 1, ""),  # the pod's last sample is eleven minutes old
        (2, 12.1, ""),  # it fails more than ten minutes after the XID
        (2, None, ""),  # it ended by itself
        (0, 1, "a-0"),  # it still holds the GPU
        (0, None, "a-0"),
    ],
)
def test_an_xid_that_is_scraped_after_its_pod_failed_is_of_that_pod(
    shown: float, failed: float | None, holder: str
) -> None:
    views = Memory()
    base = {"cluster": "c", "device": "GPU-0", "node": "n", "interval_s": 60.0}
    held = {**base, "namespace": "ml", "pod": "a-0"}
    views.rows("sample", [
        {**held, "ts": AT - timedelta(minutes=1), "xid": 0},
        {**held, "ts": AT, "xid": 0 if shown else 79},
    ])  # fmt: skip
    if shown:
        views.rows("sample", [{**base, "ts": AT + timedelta(minutes=shown), "xid": 79}])
    bounds = {"since": AT - timedelta(hours=1), "until": AT + timedelta(hours=1)}
    xids = read_xid_changes(views, bounds)
    views.engine.close()
    owner = OWNERS["c", "ml", "a-0"]
    ended = [] if failed is None else [signal("process_failed", failed, owner=owner, pod="a-0")]
    listed = [*list_xid_signals(find_failed_holders(xids, ended, OWNERS), OWNERS)]
    assert [(s.name, s.pod, s.owner) for s in listed] == [
        ("xid_off_bus", holder, owner if holder else None)
    ]
    if failed == 1:
        assert len(groups(*listed, *ended)) == (1 if holder else 2)


def test_progress_alone_is_no_incident() -> None:
    assert groups(signal("progress_advances", 0, owner=OWNERS["c", "ml", "a-0"])) == []


@pytest.mark.parametrize(
    ("names", "cause", "step"),
    [
        (("xid_nvlink", "nvlink_crc_growth"), "nvlink", "reset the GPU"),
        (("nvlink_crc_growth", "nvlink_replay_growth"), "unknown", "hold"),
        (("ecc_growth", "remap_pending"), "gpu memory", "reset the GPU"),
        # A reset does not mend it, with all evidence of errors that a reset mends.
        (("remap_failed", "xid_memory", "xid_double_bit", "ecc_growth", "remap_growth",
          "remap_pending", "message_cuda_ecc", "process_failed", "message_nccl_timeout"),
         "gpu memory broken", "recycle the node"),
        (("pcie_replay_growth", "process_failed"), "unknown", "hold"),
        (("slow_clock", "power_braked"), "power brake", "restart elsewhere"),
        (("clocks_alike", "power_braked"), "power cap of the room", "hold"),
        (("kernel_problem", "process_failed", "stall_confirmed"), "node kernel",
         "recycle the node"),
        (("kernel_problem", "process_failed"), "unknown", "hold"),
        (("filesystem_readonly",), "disk of the node", "restart elsewhere"),
        (("disk_error",), "unknown", "hold"),
        (("runtime_problem",), "node software", "restart elsewhere"),
        (("gpu_missing",), "unknown", "hold"),
        (("gpu_missing", "device_gone"), "gpu off the bus", "recycle the node"),
        (("ib_link_flapping", "process_failed"), "unknown", "hold"),
        (("ib_link_flapping", "message_nccl_timeout", "process_failed"), "fabric link",
         "restart elsewhere"),
        (("process_failed", "crash_loop"), "crash loop", "tell the owner"),
        (("process_failed", "exit_memory_fault"), "unknown", "hold"),
        (("node_not_ready", "pods_lost", "ranks_lost"), "node lost", "recycle the node"),
        (("ranks_lost", "message_nccl_timeout"), "collective timeout",
         "rerun from the checkpoint"),
        # The ranks that wait for one that had an error of its own.
        (("xid_application", "process_failed", "message_nccl_timeout"), "application error",
         "restart in place"),
        (("xid_contained", "process_failed", "message_nccl_timeout"), "contained memory error",
         "restart in place"),
        # A job that hangs may be restarted by a policy: two symptoms are no cause.
        (("xid_application", "process_failed", "message_nccl_timeout", "stall_confirmed"),
         "unknown", "hold"),
        (("stall_confirmed", "message_nccl_timeout", "process_failed"), "hang",
         "rerun from the checkpoint"),
        (("xid_application", "message_nccl_timeout", "ranks_lost"), "collective timeout",
         "rerun from the checkpoint"),
    ],
)  # fmt: skip
def test_each_kind_of_evidence_has_its_weight(
    names: tuple[str, ...], cause: str, step: str
) -> None:
    verdict = judge(names, has_checkpoint=True, runs_again=False)
    assert (verdict.cause, verdict.step) == (cause, step)


def test_a_changed_world_size_and_its_lost_ranks_are_one_incident() -> None:
    owner = OWNERS["c", "ml", "a-0"]
    lost = signal("node_not_ready", 0, node="n-0")
    gone = signal("pods_lost", 1, owner=owner, node="n-0")
    others = signal("ranks_lost", 2, owner=owner, node="n-1", pod="a-1")
    again = signal("controller_restarts", 5, owner=owner)
    assert groups(lost, gone, others, again) == [
        {"node_not_ready", "pods_lost", "ranks_lost", "controller_restarts"}
    ]


def test_a_workload_that_its_controller_restarts_is_not_restarted_again() -> None:
    owner = OWNERS["c", "ml", "a-0"]
    failed = [
        signal("message_nccl_timeout", 0, owner=owner), signal("process_failed", 0, owner=owner)
    ]  # fmt: skip
    again = signal("controller_restarts", 1, owner=owner)
    ended = signal("controller_gave_up", 2, owner=owner)
    steps = [
        judge_signals(group, has_checkpoint=True, recovered=False).step
        for group in (failed, [*failed, again], [*failed, again, ended])
    ]
    assert steps == ["rerun from the checkpoint", "hold", "rerun from the checkpoint"]


def test_a_restart_alone_is_no_incident() -> None:
    assert groups(signal("controller_restarts", 0, owner=OWNERS["c", "ml", "a-0"])) == []


@pytest.mark.parametrize(("code", "name"), [(139, "exit_memory_fault"), (143, "exit_terminated")])
def test_an_exit_code_by_a_signal_is_evidence(code: int, name: str) -> None:
    exited = {"name": "main", "restarts": 3, "last_exit": {"code": code}}
    process = EndedProcess(
        cluster="c", namespace="ml", workload_kind="PyTorchJob", workload="a", pod="a-0", node="n",
        phase="Failed", started_at=AT, finished_at=AT + timedelta(hours=1),
        last_seen=AT + timedelta(hours=1), containers=json.dumps([exited]),
    )  # fmt: skip
    assert [s.name for s in list_process_signals([process])] == [
        "process_failed", name, "crash_loop"
    ]  # fmt: skip


def end_at_once(name: str, minutes: int, node: str = "n") -> EndedProcess:
    """Return a pod that failed ten seconds after its start, as the next poll showed it."""
    at = AT + timedelta(minutes=minutes)
    times = {"started_at": at - timedelta(seconds=10), "finished_at": at}
    exited = {
        "name": "main", "restarts": 0,
        "last_exit": {"code": 1, **{key: f"{time:%FT%TZ}" for key, time in times.items()}},
    }  # fmt: skip
    return EndedProcess(
        cluster="c", namespace="ml", workload_kind="Job", workload=name, pod=f"{name}-0", node=node,
        phase="Failed", last_seen=at + timedelta(minutes=1), containers=json.dumps([exited]),
        **times,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("others", "blamed"),
    [
        ([("b", 60, "n")], {"a", "b"}),
        # Mistakes of their own, an hour and more apart, or on another node.
        ([("b", 61, "n")], set()),
        ([("b", 7 * 24 * 60, "n")], set()),
        ([("b", 0, "m")], set()),
        # What fails elsewhere too has its own mistake.
        ([("b", 5, "n"), ("b", 6, "m")], set()),
        # Of three, two are within an hour of one another.
        ([("b", 90, "n"), ("d", 120, "n")], {"b", "d"}),
    ],
)
def test_a_node_is_blamed_for_workloads_that_end_on_it_in_one_hour(
    others: list[tuple[str, int, str]], blamed: set[str]
) -> None:
    processes = [end_at_once("a", 0), *(end_at_once(*each) for each in others)]
    found = [s for s in list_process_signals(processes) if s.name == "exit_at_once_workloads"]
    assert {s.owner[3] for s in found if s.owner} == blamed


def test_what_a_second_workload_shows_is_not_known_before_it() -> None:
    """The first failed at 12:00; that the node is at fault is known when the second has failed."""
    signals = list_process_signals([end_at_once("a", 0), end_at_once("b", 30)])
    known = {s.known_at for s in signals if s.name == "exit_at_once_workloads"}
    assert known == {AT + timedelta(minutes=30)}


def test_a_controllers_event_is_about_its_workload() -> None:
    event = IncidentEvent(
        cluster="c", uid="u", at=AT, kind="MPIJob", namespace="ml", name="m",
        reason="MPIJobRestarting", message="",
    )  # fmt: skip
    [restart] = list_event_signals([event], OWNERS, {})
    assert (restart.name, restart.owner) == ("controller_restarts", ("c", "ml", "MPIJob", "m"))


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("GPUMissing", "gpu_missing"),
        ("IBLinkFlapping", "ib_link_flapping"),
        ("NVLinkStatusInactive", "nvlink_inactive"),
        ("UnregisterNetDevice", "kernel_problem"),
        ("FrequentDockerRestart", "runtime_problem"),
        ("NoGPUMissing", None),
        ("NoIBLinkFlapping", None),
    ],
)
def test_a_condition_of_aks_is_a_signal_and_its_end_is_none(reason: str, name: str | None) -> None:
    event = IncidentEvent(
        cluster="c", uid="u", at=AT, kind="Node", namespace="", name="n", reason=reason, message="",
    )  # fmt: skip
    signals = list(list_event_signals([event], OWNERS, {}))
    assert [s.name for s in signals] == ([name] if name else [])


def test_errors_that_rose_are_signals_and_old_ones_are_none() -> None:
    views = Memory()
    base = {"cluster": "c", "device": "GPU-0", "node": "n", "interval_s": 30.0}
    for minute, crc, replays, pending in ((0, 0, 0, 0), (1, 0, 0, 0), (2, 5, 0, 1), (3, 5, 1, 1)):
        values = {
            "nvlink_crc": crc, "nvlink_replay": replays, "row_remap_pending": pending,
            "pcie_replay": 7,
        }  # fmt: skip
        views.rows("sample", [{**base, "ts": AT + timedelta(minutes=minute), **values}])
    bounds = {"since": AT, "until": AT + timedelta(hours=1)}
    growths = read_counter_growth(views, bounds)
    views.engine.close()
    shown = [(s.name, s.at - AT) for s in list_counter_signals(growths, OWNERS)]
    assert shown == [
        ("remap_pending", timedelta(minutes=2)),
        ("nvlink_crc_growth", timedelta(minutes=2)),
        ("nvlink_replay_growth", timedelta(minutes=3)),
    ]
