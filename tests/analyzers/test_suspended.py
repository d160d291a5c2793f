"""A job that Fallow suspended runs again only where all is known: a case, and its near-twins.

A node of eight GPUs is free; the job had two pods of four GPUs until two hours ago.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from actions.decide import decide
from actions.facts import gather_facts
from actions.policy.parser import read_policies
from analyzers.suspended.analyzer import SuspendedAnalyzer
from capacity.queue.exclusions import ENDED_EXCLUSION, EXCLUDED
from capacity.queue.suspensions import Suspension, read_suspensions
from fallow.action_models import Action, Change, Decision, FreedPod, Intent, Target
from fallow.models import Finding
from fallow.window import Window
from tests.actions.cases import HOUR, NOW, facts, finding, history, spent
from tests.actions.facts.test_waiting import THEN
from tests.actions.policy.test_ready_made import FOLDER
from tests.analyzers.conftest import Memory
from tests.capacity.queue_fleets import QueueFleet, eight

STOPPED = NOW - 2 * HOUR
JOB = ("c", "Job", "team-a", "train")
RERUN = "rerun from the checkpoint"
Edit = Callable[[dict[str, Any]], object]


class SuspendedFleet(QueueFleet):
    """A cluster with a free node, and a suspended job."""

    def __init__(self, views: Memory) -> None:
        super().__init__(views)
        self.seq = 0
        self.node("n1")

    def stop(self, edit: Edit = dict.copy, result: str = "done") -> str:
        """Journal the stop, changed by `edit`; return its id."""
        action = f"a{self.seq}"
        document = msgspec.to_builtins({"action": build_stop(action), "facts": build_facts()})
        document["policy"] = {"text": {}}
        edit(document)
        self.journal("intent", action, document)
        self.journal("outcome", action, {"result": result})
        return action

    def journal(self, kind: str, about: str, document: Any) -> None:
        """Add a row of the journal's copy."""
        self.seq += 1
        row = {
            "cluster": "c", "seq": self.seq, "ts": STOPPED.replace(tzinfo=None), "kind": kind,
            "about": about, "actor": "fallow", "document": json.dumps(document), "hash": "",
        }  # fmt: skip
        self.views.rows("action", [row])

    def had_pods(self, uid: str = "uid-1", **more: Any) -> None:
        """Let the job have had its two pods until its stop."""
        start, end = THEN - timedelta(hours=9), THEN - timedelta(hours=2)
        self.views.rows("pod", [
            {"cluster": "c", "namespace": "team-a", "workload_kind": "Job", "workload": "train",
             "workload_uid": uid, "uid": f"p{n}", "pod": f"train-{n}", "node": "n1",
             "phase": "Failed", "gpu_request": 4.0, "gpu_resource": "nvidia.com/gpu",
             "created_at": start, "scheduled_at": start, "started_at": start, "first_seen": start,
             "finished_at": end + timedelta(minutes=1), "last_seen": end} | more
            for n in range(2)
        ])  # fmt: skip

    def tell_cause(self, step: str = RERUN, node: str = "", device: str = "", **more: Any) -> None:
        """Store an incident of the hang, four to three hours ago."""
        signs = [{"node": node, "device": device, "of_cause": True}] if node else []
        row = {"id": step, "cluster": "c", "cause": "hang", "step": step,
               "start": THEN - timedelta(hours=4), "end": THEN - timedelta(hours=3),
               "workloads": '["team-a/Job/train"]', "evidence": json.dumps(signs)}  # fmt: skip
        self.views.rows("incident", [row | more])

    def find(self) -> list[Finding]:
        return SuspendedAnalyzer().find(self.views, Window(NOW - 6 * HOUR, NOW))

    def hold(self) -> str:
        """Return why the one job stays suspended."""
        (unjudged,) = SuspendedAnalyzer().unjudged(self.views, Window(NOW - 6 * HOUR, NOW))
        assert self.find() == []
        (why,) = unjudged.reasons
        return why


def build_facts() -> Any:
    hang = finding(
        "Job", analyzer="stalled", kind="stalled_job", window=Window(NOW - 4 * HOUR, STOPPED)
    )
    return facts(finding=hang, labels={"team": "research"})


def build_stop(action: str) -> Action:
    target = Target("c", "batch/v1", "Job", "team-a", "train", "uid-1", "31", 4)
    change = Change(target, "PATCH", "/apis/batch/v1/namespaces/team-a/jobs/train",
                    {"spec": {"suspend": True}}, becomes={"/spec/suspend": True})  # fmt: skip
    frees = tuple(FreedPod("team-a", f"train-{n}", f"p{n}", "n1", 4.0) for n in range(2))
    decision = Decision("d" * 12, "stalled-jobs", "f" * 12, JOB, "suspend", "act", "allow", (),
                        STOPPED)  # fmt: skip
    return Action(action, decision, Intent(target, "suspend", (change,), (), frees), STOPPED, "a")


@pytest.fixture
def fleet() -> Iterator[SuspendedFleet]:
    memory = Memory()
    yield SuspendedFleet(memory)
    memory.engine.close()


@pytest.fixture
def ended(fleet: SuspendedFleet) -> SuspendedFleet:
    """Return the fleet with all that a resume needs."""
    fleet.had_pods()
    fleet.tell_cause()
    fleet.stop()
    return fleet


def test_a_job_is_found_with_its_nodes_once_its_hang_ended(
    ended: SuspendedFleet,
) -> None:
    (found,) = ended.find()
    (advice,) = found.recommendations
    assert (advice.verb, found.subject.nodes, found.details["gpus"]) == ("resume", ("n1",), 8.0)
    assert (found.gpu_hours, found.window) == (0.0, Window(STOPPED, NOW))
    assert advice.why == (
        "Fallow suspended it; its stop ended incident rerun from the checkpoint (hang), "
        "and its pods fit on n1"
    )


def test_the_facts_are_those_of_before_the_stop_and_of_its_generation(
    ended: SuspendedFleet,
) -> None:
    (case,) = gather_facts(ended.views, ended.find(), NOW)
    assert (case.uid, case.owner, case.labels) == ("uid-1", "team-a", {"team": "research"})
    # The object was of generation 4 before, and the stop wrote its spec once.
    assert (case.generation, case.gpus, case.nodes_ready) == (5, 8.0, True)
    assert case.skew_s == 0.5
    # Nobody polls this API: that is unknown, and no gate passes for it.
    assert (case.seen_until, case.coverage) == (None, None)


def test_the_shipped_policy_tells_its_owner_and_holds_what_somebody_keeps(
    ended: SuspendedFleet,
) -> None:
    (policy,) = read_policies([FOLDER / "resume-suspended-jobs.yaml"])
    (case,) = gather_facts(ended.views, ended.find(), NOW)
    polled = msgspec.structs.replace(case, seen_until=NOW, interval_s=60.0, coverage=1.0)
    notice = decide(policy, polled, spent(), NOW)
    assert (notice.verb, notice.step, notice.ruling) == ("resume", "notify", "allow")
    assert "mode is notify: it only tells" in {r.text for r in notice.reasons}
    kept = msgspec.structs.replace(polled, history=history(kept_until=NOW + HOUR))
    decision = decide(policy, kept, spent(), NOW)
    assert (decision.ruling, "keep" in {r.gate for r in decision.reasons}) == ("hold", True)


def let_kueue_manage(document: dict[str, Any]) -> None:
    document["action"]["intent"]["changes"][0]["target"]["kind"] = "Workload"


def forget_facts(document: dict[str, Any]) -> None:
    document["facts"] = None


def forget_generation(document: dict[str, Any]) -> None:
    document["action"]["intent"]["target"]["generation"] = None


def name_two_uids(document: dict[str, Any]) -> None:
    document["facts"]["uid"] = "another"


def be_another_object(document: dict[str, Any]) -> None:
    document["facts"]["uid"] = document["action"]["intent"]["target"]["uid"] = "another"


def free_other_pods(document: dict[str, Any]) -> None:
    document["action"]["intent"]["frees"][0]["uid"] = "another"


def have_been_idle(document: dict[str, Any]) -> None:
    document["facts"]["finding"]["kind"] = "idle_job"


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (let_kueue_manage, "Kueue manages it, and writes its spec itself"),
        (forget_facts, "the journal does not have the facts of before its stop"),
        (forget_generation, "the journal does not have the facts of before its stop"),
        (name_two_uids, "the journal names two uids of it"),
        (be_another_object, "not stored, or are another object's"),
        (free_other_pods, "the pods that its stop freed are not those that are stored"),
        (have_been_idle, "it was idle: only its owner knows whether it has work again"),
    ],
)
def test_what_contradicts_the_journal_or_only_its_owner_knows_holds(
    ended: SuspendedFleet, edit: Edit, why: str
) -> None:
    ended.stop(edit)
    assert why in ended.hold()
    ended.stop()
    assert len(ended.find()) == 1


def test_a_hold_that_only_its_owner_ends_names_the_command(ended: SuspendedFleet) -> None:
    action = ended.stop(have_been_idle)
    assert ended.hold() == (
        "it was idle: only its owner knows whether it has work again, and resumes it on the page "
        f"Mine (now: `fallow undo {action}`; once it has room: `fallow resume {action}`)"
    )


def wait(fleet: SuspendedFleet) -> None:
    fleet.waits("other", 1)


def fill(fleet: SuspendedFleet) -> None:
    fleet.runs("busy", eight("n1")[:1])


def run_again(fleet: SuspendedFleet) -> None:
    fleet.had_pods(finished_at=None, last_seen=THEN - timedelta(minutes=1), phase="Running")


@pytest.fixture
def requested(fleet: SuspendedFleet) -> SuspendedFleet:
    """Return the fleet whose job was stopped as idle, and whose owner wants it back with room."""
    fleet.had_pods()
    fleet.journal("resume-requested", fleet.stop(have_been_idle), {})
    return fleet


def test_an_idle_job_runs_again_with_room_once_its_owner_requested_it(
    requested: SuspendedFleet,
) -> None:
    (found,) = requested.find()
    (advice,) = found.recommendations
    assert (advice.verb, found.subject.nodes) == ("resume", ("n1",))
    assert found.details["why"] == (
        f"fallow requested at {STOPPED:%Y-%m-%d %H:%M} UTC to resume it once it has room"
    )


def lose_telemetry(fleet: SuspendedFleet) -> None:
    """The other node's GPUs are not shown, and the free one is taken."""
    fill(fleet)
    fleet.node("n2", 0, gpu_count=8)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (wait, "1 workloads wait for GPUs: they come first"),
        (fill, "its pods have no room: 1 of its 2 pods fit"),
        (lose_telemetry, "whether its pods have room is not known: "),
        (run_again, "it has pods"),
    ],
)
def test_a_requested_job_stays_without_proven_room(
    requested: SuspendedFleet, change: Callable[[SuspendedFleet], None], why: str
) -> None:
    change(requested)
    assert requested.hold().startswith(why)


@pytest.mark.parametrize("kind", ["reversed", "undo-started", "object-gone"])
def test_a_stop_that_was_taken_back_withdraws_the_request(
    requested: SuspendedFleet, kind: str
) -> None:
    requested.journal(kind, "a0", {"by": "ann"})
    assert requested.find() == []
    assert read_suspensions(requested.views, NOW) == []


def test_a_request_is_no_reason_for_a_job_that_hung(ended: SuspendedFleet) -> None:
    action = ended.stop()
    ended.journal("resume-requested", action, {})
    ended.tell_cause("tell the owner")
    assert "incidents call for different steps" in ended.hold()


def test_a_request_holds_two_weeks_after_it_also_where_the_stop_is_older(
    requested: SuspendedFleet,
) -> None:
    sql = "UPDATE action SET ts = ts + INTERVAL 13 DAY WHERE kind = 'resume-requested'"
    requested.views.engine.execute(sql)
    end = STOPPED + timedelta(days=27)
    for at, count in ((end, 1), (end + timedelta(seconds=1), 0)):
        assert len(read_suspensions(requested.views, at)) == count


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (wait, "1 workloads wait for GPUs: they come first"),
        (fill, "its pods have no room: 1 of its 2 pods fit"),
        (run_again, "it has pods, or its last ones were seen in the last ten minutes"),
        (lambda fleet: fleet.tell_cause("tell the owner"), "incidents call for different steps"),
    ],
)
def test_a_job_without_room_or_with_pods_or_another_cause_holds(
    ended: SuspendedFleet, change: Callable[[SuspendedFleet], None], why: str
) -> None:
    change(ended)
    assert why in ended.hold()


@pytest.mark.parametrize(("seconds", "is_known"), [(0, True), (1, False)])
def test_an_incident_counts_from_when_its_step_was_known(
    fleet: SuspendedFleet, seconds: int, is_known: bool
) -> None:
    fleet.had_pods()
    fleet.stop()
    fleet.tell_cause(known_at=THEN + timedelta(seconds=seconds))
    assert bool(fleet.find()) is is_known


@pytest.mark.parametrize(
    ("step", "node", "why"),
    [
        ("recycle the node", "n1", "are still there: n1"),
        ("restart elsewhere", "", "the nodes of its incident restart elsewhere (hang)"),
        ("tell the owner", "", "(hang) calls for: tell the owner"),
        ("reset the GPU", "n1", "(hang) calls for: reset the GPU"),
    ],
)
def test_a_job_stays_while_its_cause_does(
    fleet: SuspendedFleet, step: str, node: str, why: str
) -> None:
    fleet.had_pods()
    fleet.stop()
    assert fleet.hold() == "no incident of its hang is stored: its cause is not known"
    fleet.tell_cause(step, node)
    assert why in fleet.hold()


def test_a_job_runs_again_once_the_node_of_its_incident_is_gone(fleet: SuspendedFleet) -> None:
    fleet.had_pods()
    fleet.stop()
    fleet.tell_cause("recycle the node", "n0")
    (found,) = fleet.find()
    assert found.details["why"].endswith("(hang) are gone: n0")


def shows(
    fleet: SuspendedFleet, names: Sequence[str], first_h: float, last_h: float = 0.0, at: str = "n0"
) -> None:
    """Let telemetry show GPUs on a node, from and until so many hours ago."""
    fleet.views.rows("device", [
        {"cluster": "c", "device": name, "node": at, "weight": 1.0, "interval_s": 60.0,
         "gpu_model": "H100", "first_seen": THEN - timedelta(hours=first_h),
         "last_seen": THEN - timedelta(hours=last_h)}
        for name in names
    ])  # fmt: skip


OLD, NEW = ("GPU-a", "GPU-b"), ("GPU-c", "GPU-d")
"""The GPUs of node n0 at the time of the incident, and others."""


@pytest.fixture
def recycled(fleet: SuspendedFleet) -> SuspendedFleet:
    """Return the fleet whose node n0 is there by its name; a test says with which GPUs."""
    fleet.had_pods()
    fleet.stop()
    fleet.node("n0", 0, gpu_count=2)
    return fleet


@pytest.mark.parametrize("device", ["GPU-a", ""])
def test_a_node_that_came_back_under_its_name_with_other_gpus_is_another_node(
    recycled: SuspendedFleet, device: str
) -> None:
    recycled.tell_cause("recycle the node", "n0", device)
    shows(recycled, OLD, first_h=90, last_h=3)
    shows(recycled, NEW, first_h=2)
    (found,) = recycled.find()
    assert found.details["why"] == (
        "the nodes of its incident recycle the node (hang) are gone: n0 (it has other GPUs now)"
    )


def exclude(fleet: SuspendedFleet) -> None:
    """Journal a restart elsewhere of the job, an hour before its stop."""
    action = f"e{fleet.seq}"
    document = msgspec.to_builtins({"action": build_stop(action)})
    changes = document["action"]["intent"]["changes"]
    start = {"was": {"/spec/suspend": True, AFFINITY: None},
             "becomes": {"/spec/suspend": False, AFFINITY: {"nodeAffinity": {}}}}  # fmt: skip
    document["action"]["intent"] |= {
        "capability": "restart elsewhere", "changes": [*changes, changes[0] | start],
    }  # fmt: skip
    document["action"]["decision"]["parameters"] = {EXCLUDED: ["n0"]}
    at = STOPPED - HOUR
    document["action"]["at"] = at.isoformat()
    fleet.journal("intent", action, document)
    fleet.journal("outcome", action, {"result": "done"})
    sql = "UPDATE action SET ts = $at WHERE about = $about"
    fleet.views.engine.execute(sql, {"at": at.replace(tzinfo=None), "about": action})


AFFINITY = "/spec/template/spec/affinity"
ENDED = {"was": {AFFINITY: None}, "becomes": {AFFINITY: {"nodeAffinity": {}}}}


@pytest.fixture
def excluded(fleet: SuspendedFleet) -> SuspendedFleet:
    """Return the fleet whose job can run again and was restarted elsewhere than n0 before."""
    fleet.node("n0", 0, gpu_count=2)
    fleet.had_pods()
    fleet.tell_cause()
    exclude(fleet)
    fleet.stop()
    shows(fleet, OLD, first_h=90, last_h=3)
    return fleet


def find_ended(fleet: SuspendedFleet) -> Any:
    (found,) = fleet.find()
    return found.details[ENDED_EXCLUSION]


@pytest.mark.parametrize(("seconds", "ended"), [(1, ENDED), (0, None)])
def test_an_exclusion_ends_when_the_node_has_other_gpus_than_at_the_restart(
    excluded: SuspendedFleet, seconds: int, ended: Any
) -> None:
    shows(excluded, NEW, first_h=3 - seconds / 3600)
    assert find_ended(excluded) == ended
    (advice,) = excluded.find()[0].recommendations
    assert ("n0 is excluded no more: it has other GPUs" in advice.why) is (ended is not None)


def keep_one(fleet: SuspendedFleet) -> None:
    shows(fleet, NEW, first_h=2)
    shows(fleet, ["GPU-e"], first_h=90)


def edit(fleet: SuspendedFleet, before: str, after: str) -> None:
    """Change the rows of the restart elsewhere; the node has other GPUs."""
    shows(fleet, NEW, first_h=2)
    sql = "UPDATE action SET document = replace(document, $before, $after) WHERE about = 'e0'"
    fleet.views.engine.execute(sql, {"before": before, "after": after})


def exclude_from_another_object(fleet: SuspendedFleet) -> None:
    edit(fleet, "uid-1", "another")


def exclude_in_vain(fleet: SuspendedFleet) -> None:
    edit(fleet, '"done"', '"failed"')


@pytest.mark.parametrize(
    "change", [lambda _: None, keep_one, exclude_from_another_object, exclude_in_vain]
)
def test_an_exclusion_stays_where_the_node_is_the_same_or_not_known(
    excluded: SuspendedFleet, change: Callable[[SuspendedFleet], None]
) -> None:
    change(excluded)
    assert find_ended(excluded) is None


def keep_all(fleet: SuspendedFleet) -> None:
    shows(fleet, OLD, first_h=90)


def replace_one_other(fleet: SuspendedFleet) -> None:
    """The GPU of the incident stays, the other one was replaced."""
    shows(fleet, OLD[:1], first_h=90)
    shows(fleet, OLD[1:], first_h=90, last_h=3)
    shows(fleet, NEW[:1], first_h=2)


def replace_the_sick_one(fleet: SuspendedFleet) -> None:
    """A GPU that fell off the bus and another one in its place: the machine is the same."""
    shows(fleet, OLD[:1], first_h=90, last_h=3)
    shows(fleet, OLD[1:], first_h=90)
    shows(fleet, NEW[:1], first_h=2)


def show_one_of_two(fleet: SuspendedFleet) -> None:
    shows(fleet, OLD, first_h=90, last_h=3)
    shows(fleet, NEW[:1], first_h=2)


def show_before_the_end(fleet: SuspendedFleet) -> None:
    """The new GPUs were there before the incident's last sign, three hours ago."""
    shows(fleet, OLD, first_h=90, last_h=5)
    shows(fleet, NEW, first_h=3)


def never_show_old(fleet: SuspendedFleet) -> None:
    shows(fleet, NEW, first_h=2)


def fall_silent(fleet: SuspendedFleet) -> None:
    shows(fleet, OLD, first_h=90, last_h=3)
    shows(fleet, NEW, first_h=2, last_h=0.2)


@pytest.mark.parametrize(
    "change",
    [
        keep_all, replace_one_other, replace_the_sick_one, show_one_of_two, show_before_the_end,
        never_show_old, fall_silent, lambda _: None,
    ],
)  # fmt: skip
def test_a_node_that_came_back_with_its_gpus_or_with_unknown_ones_is_still_there(
    recycled: SuspendedFleet, change: Callable[[SuspendedFleet], None]
) -> None:
    recycled.tell_cause("recycle the node", "n0")
    change(recycled)
    assert recycled.hold().endswith("are still there: n0")


def test_a_gpu_of_the_incident_in_another_node_is_still_there(recycled: SuspendedFleet) -> None:
    recycled.tell_cause("recycle the node", "n0", "GPU-a")
    shows(recycled, OLD[1:], first_h=90, last_h=3)
    shows(recycled, NEW, first_h=2)
    shows(recycled, OLD[:1], first_h=90, at="n7")
    assert recycled.hold().endswith("are still there: n7")


def test_a_job_stopped_for_others_runs_again_without_them(fleet: SuspendedFleet) -> None:
    def press(document: dict[str, Any]) -> None:
        have_been_idle(document)
        document["policy"]["text"] = {"on_pressure": True}

    fleet.had_pods()
    fleet.stop(press)
    assert len(fleet.find()) == 1
    wait(fleet)
    assert fleet.hold() == "1 workloads wait for GPUs: they come first"


@pytest.mark.parametrize("kind", ["reversed", "undo-started", "object-gone"])
def test_a_stop_that_was_taken_back_is_none_of_ours(ended: SuspendedFleet, kind: str) -> None:
    action = ended.stop()
    assert len(ended.find()) == 1
    ended.journal(kind, action, {"by": "kubectl"})
    assert ended.find() == []
    assert read_suspensions(ended.views, NOW) == []


def test_only_a_stop_that_took_effect_and_is_the_newest_act_counts(ended: SuspendedFleet) -> None:
    ended.stop(result="unknown")
    assert read_suspensions(ended.views, NOW) == []
    ended.stop(lambda document: document["action"]["decision"].update(verb="resume"))
    assert read_suspensions(ended.views, NOW) == []
    ended.stop()
    (suspension,) = read_suspensions(ended.views, NOW)
    assert isinstance(suspension, Suspension)
