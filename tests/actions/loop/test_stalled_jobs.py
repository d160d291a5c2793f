"""A job that hangs, from exporters to the API: suspended only where nothing has changed since.

Two ranks of a Job spin over HTTP exporters, their trainers' step stands still, and the shipped
policy `stalled-jobs` acts through the API stub. What happens between the plan and the act decides.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.journal import JournalState, event_types
from actions.journal.trust import trust_by_hand
from actions.loop.actor import Actor
from actions.policy.parser import read_policies
from collectors.exporters import ExporterCollector
from collectors.kube.collector import KubernetesCollector
from fallow.action_models import Facts
from fallow.protocols import Collector
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.operations.accounting import pipeline
from runtime.operations.acting import live_actor, plans
from tests.actions.loop.plant import GPUS, MODEL, Meanwhile, Plant, Sources
from tests.actions.loop.site import SPACE, Told, api, pod_spec
from tests.analyzers.gangs import SHOWN

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
EVERY = timedelta(minutes=2)
HALF_HOUR = timedelta(minutes=32)
SHIPPED = Path(__file__).resolve().parents[3] / "policies" / "stalled-jobs.yaml"
FIELDS = {
    "gr_engine_active": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "gpu_util_pct": "DCGM_FI_DEV_GPU_UTIL",
    "sm_active": "DCGM_FI_PROF_SM_ACTIVE",
    "tensor_active": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram_active": "DCGM_FI_PROF_DRAM_ACTIVE",
    "pcie_tx_bps": "DCGM_FI_PROF_PCIE_TX_BYTES",
    "pcie_rx_bps": "DCGM_FI_PROF_PCIE_RX_BYTES",
    "power_w": "DCGM_FI_DEV_POWER_USAGE",
}


class GangSources(Sources):
    """Exporters that show the state of each pod, and trainers that report its step."""

    plant: "GangPlant"

    def answer(self, path: str) -> tuple[int, bytes]:
        if path.startswith("/trainers/") and path not in self.away:
            return 200, f"train_global_step {self.plant.step}\n".encode()
        return super().answer(path)

    def _metrics(self, node: str) -> str:
        plant, lines = self.plant, []
        for pod in plant.pods():
            if pod["spec"].get("nodeName") != node:
                continue
            name = pod["metadata"]["name"]
            for n in range(GPUS):
                shown = SHOWN[plant.states.get((name, n), plant.state)]
                labels = (
                    f'gpu="{n}",UUID="GPU-{node}-{n}",device="nvidia{n}",modelName="{MODEL}",'
                    f'Hostname="{node}",namespace="{SPACE}",pod="{name}",container="main"'
                )
                lines += [f"{FIELDS[field]}{{{labels}}} {value}" for field, value in shown.items()]
        return "\n".join(lines) + "\n"


class GangPlant(Plant):
    """A site of two nodes, scraped every two minutes, with one Job of two ranks."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 2)
        self.sources.close()
        self.sources = GangSources(self)
        self.state, self.step = "work", 100
        self.states: dict[tuple[str, int], str] = {}
        """Of one GPU of a pod, where it differs."""

    def gang(self, **annotations: str) -> None:
        """Make the Job and let it work for an hour, then hang for 14 minutes."""
        spec = pod_spec()
        spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = str(GPUS)
        meta = {"annotations": annotations, "labels": {"team": "research"}}
        template = {"metadata": meta, "spec": spec}
        template["spec"]["restartPolicy"] = "Never"
        self.make("Job", "train", {"parallelism": 2, "completions": 2, "template": template})
        self.pass_time(minutes=3)
        rows: list[Batch] = []
        for _ in range(30):
            self.step += 1
            self.pass_time(minutes=2)
            rows += self.read()
        self.store_rows(rows, self.now)
        self.state = "spin"
        self.live(7 * EVERY)

    def settings_of(self, servers: Sequence[str]) -> Settings:
        settings = super().settings_of(servers[:0])
        pods = [p["metadata"]["name"] for p in self.pods() if p["spec"].get("nodeName")]
        trainers = [f"{SPACE}/{p}={self.sources.url}/trainers/{p}" for p in pods]
        exporters = settings.exporters.model_copy(update={"interval": EVERY, "trainers": trainers})
        service = settings.service.model_copy(update={"collect_every": EVERY})
        return settings.model_copy(update={"exporters": exporters, "service": service})

    def read(self) -> list[Batch]:
        config, clock = self.config, lambda: self.now
        collectors: list[Collector] = [
            KubernetesCollector(config.kubernetes, "c", clock, api=api(self.server.url)),
            ExporterCollector(config.exporters, "c", clock),
        ]
        return list(pipeline.collect(collectors, Window(self.now - EVERY, self.now)))

    def live(self, length: timedelta) -> None:
        end, rows = self.now + length, []
        while self.now < end:
            self.pass_time(minutes=2)
            rows += self.read()
        self.store_rows(rows, self.now)

    def facts(self) -> list[Facts]:
        return plans.gather_cases(
            self.lake, self.config, at=self.now, cluster="c", names=("stalled",)
        )[0]

    def turning(self, meanwhile: Callable[[], None] = lambda: None) -> Actor:
        text = SHIPPED.read_text(encoding="utf-8")
        text = text.replace("namespaces: []", 'namespaces: ["*"]')
        text = text.replace("{when: first 10}", "{when: none}")
        text = text.replace("workloads: 10%", "workloads: 100%").replace("gpus: 20%", "gpus: 100%")
        text = text.replace("max_resources: 30%", "max_resources: 100%")
        path = self.folder / "stalled-jobs.yaml"
        path.write_text(text.replace("min_age: 1h", "min_age: 10m"), encoding="utf-8")
        policies = read_policies([path])
        record = JournalState(self.journal()).catch_up()
        for policy in policies:
            trust_by_hand(record, policy, "admin", "a test")
        return live_actor.build_actor(
            self.config, record, Meanwhile(self, meanwhile), cluster=self.door(), policies=policies,
            clock=lambda: self.now, identity="plant", notifier=Told(),
        )  # fmt: skip

    def suspended(self) -> bool:
        return bool(self.get("Job", "train")["spec"].get("suspend"))

    def intents(self) -> list[Any]:
        return [e for e in self.journal().entries() if e.kind == event_types.INTENT]


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[GangPlant]:
    with GangPlant(tmp_path) as opened:
        yield opened


SAVES = {"fallow.dev/checkpoint-interval": "30m"}


def test_a_hung_job_with_a_known_checkpoint_is_suspended_after_its_grace(
    plant: GangPlant,
) -> None:
    plant.gang(**SAVES)
    (facts,) = plant.facts()
    assert (facts.finding.evidence, facts.recommendation.verb) == ("confirmed", "suspend")
    assert plant.taken() == ["notified: "]
    plant.live(HALF_HOUR)
    assert plant.taken() == ["acted: "]
    assert plant.suspended()


@pytest.mark.parametrize(
    ("change", "result"),
    [
        # test_recheck_stalled.py: each change and silence by itself; what is between plan and act
        # is read again by the same code for all: test_last_readings.py.
        pytest.param("step", "refused", marks=pytest.mark.long),
        pytest.param("gpu", "refused", marks=pytest.mark.long),
        pytest.param("silence", "held", marks=pytest.mark.long),
    ],
)
def test_a_rank_that_goes_on_or_falls_silent_between_plan_and_act_leaves_the_job_alone(
    plant: GangPlant, change: str, result: str
) -> None:
    plant.gang(**SAVES)
    plant.turning().turn(dry_run=False)
    plant.live(HALF_HOUR)
    pod = plant.pods()[0]["metadata"]["name"]

    def resume() -> None:
        if change == "step":
            plant.step += 1
        elif change == "gpu":
            plant.states[pod, 3] = "work"

    if change == "silence":
        plant.sources.away.add(f"/trainers/{pod}")
        plant.pass_time(minutes=4)

    (line,) = plant.taken(resume)
    assert line.startswith(f"{result}: "), line
    assert not plant.suspended()
    assert plant.intents() == []


# tests/actions/policy/test_ready_made.py: suspended only where a checkpoint is known.
@pytest.mark.long
def test_a_hung_job_without_a_known_checkpoint_is_only_told_to_its_owner(
    plant: GangPlant,
) -> None:
    plant.gang()
    (facts,) = plant.facts()
    assert (facts.finding.evidence, facts.recommendation.verb) == ("confirmed", "notify owner")
    assert plant.taken() == ["notified: "]
    assert not plant.suspended()
