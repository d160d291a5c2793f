"""A job that Fallow suspended because it hung runs again once that is proved right, or stays.

From exporters to the API: `stalled-jobs` suspends it, the journal is copied as the service does,
and `resume-suspended-jobs` with `mode: enforce` has its turns.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from actions.journal import JournalState
from actions.journal.trust import trust_by_hand
from actions.journal.warehouse_copy import copy_journal
from actions.loop.actor import Actor
from actions.loop.resume_requests import request_resume
from actions.policy.parser import read_policies
from actions.savings.action_selection import select_actions
from analyzers.suspended.analyzer import SuspendedAnalyzer
from capacity.queue import suspensions
from fallow.action_models import Facts
from fallow.errors import RefusedError
from fallow.models import Unjudged
from fallow.tables import get_schema
from fallow.window import Window
from runtime.operations.acting import live_actor, plans
from tests.actions.loop.plant import GPUS, MODEL, Meanwhile
from tests.actions.loop.site import SPACE, Told, pod_spec
from tests.actions.loop.test_stalled_jobs import FIELDS, HALF_HOUR, SAVES, GangPlant, GangSources
from tests.analyzers.gangs import SHOWN
from warehouse.incidents import write_incidents

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SHIPPED = Path(__file__).resolve().parents[3] / "policies" / "resume-suspended-jobs.yaml"
RERUN = "rerun from the checkpoint"


class FreeSources(GangSources):
    """Exporters that show the devices of nodes without a pod too."""

    def _metrics(self, node: str) -> str:
        shown = super()._metrics(node).strip()
        if shown:
            return f"{shown}\n"
        lines = []
        for n in range(GPUS):
            labels = f'gpu="{n}",UUID="GPU-{node}-{n}",modelName="{MODEL}",Hostname="{node}"'
            lines += [f"{FIELDS[f]}{{{labels}}} {v}" for f, v in SHOWN["rest"].items()]
        return "\n".join(lines) + "\n"


class SuspendedPlant(GangPlant):
    """The site of a Job that hung, whose suspension stands."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.sources.close()
        self.sources = FreeSources(self)

    def suspend(self) -> None:
        """Let the job hang and be suspended, and its pods be gone for longer than ten minutes."""
        self.gang(**SAVES)
        self.turning().turn(dry_run=False)
        self.live(HALF_HOUR)
        assert self.taken() == ["acted: "]
        self.live(timedelta(minutes=4))
        self.turning().settle()
        # The breaker compares the devices of 15 minutes with those of the 15 before.
        self.pass_time(minutes=28)
        self.live(timedelta(minutes=4))
        self.copy()

    def copy(self) -> None:
        copy_journal(self.journal(), self.lake, "c")

    def tell_cause(self, *steps: str, node: str = "") -> None:
        """Store the incidents of the hang, one for each step."""
        naive = self.now.replace(tzinfo=None)
        signs = f'[{{"node": "{node}", "of_cause": true}}]' if node else "[]"
        rows = [
            {"id": step, "cluster": "c", "cause": "hang", "class": "process", "step": step,
             "start": naive - timedelta(hours=1), "end": naive - timedelta(minutes=40),
             "known_at": naive - timedelta(minutes=40), "workloads": f'["{SPACE}/Job/train"]',
             "evidence": signs, "why": "", "computed_at": naive}
            for step in steps
        ]  # fmt: skip
        table = pa.Table.from_pylist(rows, schema=get_schema("incident"))
        write_incidents(self.lake, table, Window(self.now - timedelta(hours=3), self.now))

    def cases(self) -> list[Facts]:
        return plans.gather_cases(
            self.lake, self.config, at=self.now, cluster="c", names=("suspended",)
        )[0]

    def holds(self) -> list[str]:
        """Return why jobs stay suspended."""
        window = Window(self.now - timedelta(days=1), self.now)
        unjudged: list[Unjudged] = SuspendedAnalyzer().unjudged(self.lake, window)
        return [reason for each in unjudged for reason in each.reasons]

    def resuming(self) -> Actor:
        """Return an actor of the shipped policy, with `mode: enforce` and without approvals."""
        text = SHIPPED.read_text(encoding="utf-8").replace("mode: notify", "mode: enforce")
        text = text.replace("namespaces: []", 'namespaces: ["*"]').replace("always", "none")
        text = text.replace("5%, per", "100%, per").replace("10%, per", "100%, per")
        path = self.folder / SHIPPED.name
        path.write_text(text, encoding="utf-8")
        (policy,) = read_policies([path])
        record = JournalState(self.journal()).catch_up()
        trust_by_hand(record, policy, "admin", "a test")
        return live_actor.build_actor(
            self.config, record, Meanwhile(self, lambda: None), cluster=self.door(),
            policies=[policy], clock=lambda: self.now, identity="plant", notifier=Told(),
        )  # fmt: skip

    def turn(self) -> list[str]:
        """Let an actor have its turn; return what came of each decision that was ready."""
        report = self.resuming().turn(dry_run=False)
        assert not report.halted, report.halted
        return [f"{t.result}: {'; '.join(r.text for r in t.reasons)}" for t in report.steps]

    def wait_grace(self) -> None:
        """Let its owner be notified, and the grace pass."""
        assert self.turn() == ["notified: "]
        self.live(timedelta(minutes=60))

    def occupy(self, ranks: int, name: str = "other") -> None:
        """Let another job take a node for each of its ranks, or wait for one."""
        spec = pod_spec()
        spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(GPUS)
        spec["restartPolicy"] = "Never"
        body = {"parallelism": ranks, "completions": ranks, "template": {"spec": spec}}
        self.make("Job", name, body)
        self.state = "work"
        self.live(timedelta(minutes=4))


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[SuspendedPlant]:
    with SuspendedPlant(tmp_path) as opened:
        opened.suspend()
        yield opened


def test_a_suspended_job_runs_again_once_its_reason_ended_and_it_has_room(
    plant: SuspendedPlant,
) -> None:
    assert plant.cases() == []
    assert plant.holds() == ["no incident of its hang is stored: its cause is not known"]
    plant.tell_cause(RERUN)
    (case,) = plant.cases()
    assert case.recommendation.verb == "resume"
    assert case.gpus == 2 * GPUS
    assert len(case.finding.subject.nodes) == 2
    plant.wait_grace()
    assert plant.turn() == ["acted: "]
    assert not plant.suspended()
    plant.live(timedelta(minutes=6))
    assert len(plant.pods()) == 2
    actor = plant.resuming()
    report = actor.turn(dry_run=False)
    assert [o.result for o in report.closed] == ["done"]
    # Its own resume is no reversal by an owner, and the saving of the stop ends with it.
    stop, resume = actor.record.actions.values()
    assert stop.restored is None
    (saved,) = [m for m in select_actions(actor.record) if m.action == stop.action.id]
    assert saved.returned_at == resume.action.at
    with pytest.raises(RefusedError, match="Fallow resumed it at"):
        actor.undo(stop.action.id, "ann")
    assert stop.restored is None
    plant.copy()
    assert (plant.cases(), plant.holds()) == ([], [])


# tests/analyzers/test_suspended.py: the judgement; tests/actions/loop/test_resume_requests.py: the
# request; the test above: the same turns for a job that hung.
@pytest.mark.long
def test_an_idle_job_runs_again_on_its_owners_request_once_it_has_room(
    plant: SuspendedPlant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suspensions, "STALLED_JOB", "another kind")  # so its stop counts as idle
    (hold,) = plant.holds()
    assert "once it has room: `fallow resume" in hold
    plant.occupy(2)
    (stop,) = plant.resuming().record.actions
    request_resume(JournalState(plant.journal(actor="mia")), stop, "mia", plant.now)
    plant.copy()
    plant.live(timedelta(minutes=2))
    (hold,) = plant.holds()
    assert hold.startswith("its pods have no room: ")
    assert plant.turn() == []
    plant.store.delete("Job", "other", SPACE)
    plant.state = "rest"
    plant.pass_time(minutes=48)  # the breaker compares half an hour
    plant.live(timedelta(minutes=4))
    (case,) = plant.cases()
    assert "mia requested at " in case.recommendation.why
    plant.wait_grace()
    assert plant.turn() == ["acted: "]
    assert not plant.suspended()


# tests/analyzers/test_suspended.py: the same near-twins on stored rows.
@pytest.mark.long
def test_a_job_waits_for_its_node_for_others_and_for_room(plant: SuspendedPlant) -> None:
    nodes = sorted(n["metadata"]["name"] for n in plant.store.list("Node", "") if "h100" in str(n))
    plant.tell_cause("recycle the node", node=nodes[0])
    (hold,) = plant.holds()
    assert hold.endswith(f"are still there: {nodes[0]}")
    plant.tell_cause("recycle the node", node="gone")
    (case,) = plant.cases()
    assert "(hang) are gone: gone" in case.recommendation.why
    plant.occupy(2)
    (hold,) = plant.holds()
    assert hold.startswith("its pods have no room: ")
    plant.occupy(1, "third")
    assert plant.holds() == ["1 workloads wait for GPUs: they come first"]
    assert plant.cases() == []


# tests/analyzers/test_suspended.py: the generation that the stop left; test_restarts.py of
# actions/reclaim: another uid. Protections are read by the same code for all executors.
@pytest.mark.long
def test_a_changed_or_protected_job_is_left_alone(
    plant: SuspendedPlant,
) -> None:
    plant.tell_cause(RERUN)
    plant.wait_grace()
    meta = plant.get("Job", "train")["metadata"]
    plant.patch("Job", "train", {"metadata": {"annotations": {"fallow.dev/protect": "true"}}})
    assert "fallow.dev/protect" in plant.turn()[0]
    plant.patch("Job", "train", {"metadata": {"annotations": {"fallow.dev/protect": None}}})
    plant.patch("Job", "train", {"spec": {"backoffLimit": 3}}, manager="kubectl-edit")
    (line,) = plant.turn()
    assert line.startswith("refused: it was changed since: generation"), line
    plant.store.delete("Job", "train", SPACE)
    plant.pass_time(minutes=1)
    spec = {"suspend": True, "template": {"spec": {**pod_spec(), "restartPolicy": "Never"}}}
    plant.make("Job", "train", spec)
    assert plant.get("Job", "train")["metadata"]["uid"] != meta["uid"]
    assert all("acted" not in line for line in plant.turn())
    assert plant.suspended()
