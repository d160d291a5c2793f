"""The shipped policies in one simulated site: they act, do no harm, and an admin approves.

`python -m benchmarks acting` does the same for ten.
"""

from pathlib import Path
from typing import Any

import pytest

from actions.policy.parser import read_policies as policies
from runtime.experiments.simulation.options import read
from runtime.experiments.simulation.run import simulate
from simulator.world import Spec, World

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("simulate"),
    pytest.mark.slow,
    pytest.mark.timeout(1200),  # a minute of a free processor, but it shares two with others
]
POLICIES = Path(__file__).parents[2] / "policies"
QUOTA = "ElasticQuota.scheduling.x-k8s.io"
GPU = "nvidia.com/gpu"


def guaranteed(spec: Spec, seed: int) -> World:
    """Return a world in which every team holds more than its guarantee, as others leave it."""
    world, gpus = World(spec, seed), sum(node.pool.gpu_count for node in spec.nodes)
    world.store.create(
        "Namespace", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "reserve"}}
    )
    for space in sorted({"reserve", *(category.namespace for category in spec.mix)}):
        least = gpus if space == "reserve" else 0
        quota = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "ElasticQuota",
            "metadata": {"name": "quota", "namespace": space},
            "spec": {"min": {GPU: str(least)}, "max": {GPU: str(gpus)}},
        }
        world.store.create(QUOTA, quota)
    return world


@pytest.fixture(
    scope="module",
    # In every run: the same promises of the simulation's own policy (test_simulate.py), and what
    # each shipped policy decides (tests/actions/policy/test_ready_made.py). Twelve GPUs have a
    # step of each policy too, in a third of the time of sixteen.
    params=[pytest.param((12, "3h"), id="12-gpus"), pytest.param((16, "2h"), id="16-gpus")],
)
def did(request: pytest.FixtureRequest) -> dict[str, Any]:
    mix = ["day-notebook=0.2", "abandoned=0.2", "kept=0.2", "forgotten=0.15"]
    gpus, every = request.param
    options = read(days=2, gpus=gpus, seed=11, every=every, mix=mix)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.experiments.simulation.run.World", guaranteed)
        found = simulate(options, lambda _what, _part: None, policies([POLICIES]))
    enforced: dict[str, Any] = found["enforced"]["enforcer"]
    return enforced


def test_they_act_and_do_no_harm(did: dict[str, Any]) -> None:
    assert did["actions"] > 0
    assert did["harm"]["harmful_stops"] == 0
    assert 0 < did["released_gpu_hours"] <= did["true_gpu_hours"]


def test_the_admin_trusts_lists_and_approves(did: dict[str, Any]) -> None:
    admin = did["admin"]
    assert set(admin["trusted"]) == set(did["policies"]) - {"observe-all"}
    assert admin["namespaces"] > 0
    assert admin["approved"] > 0


def test_the_service_takes_every_step_that_its_back_test_promises_and_no_other(
    did: dict[str, Any],
) -> None:
    kept = did["backtest"]
    assert kept["differences"] == []
    assert kept["promised"] == kept["lived"] == kept["both"] > 12
    # Of each policy that is about idle work something was done, but for `idle-notebooks`: it waits
    # a day, and others come first here. The others have no case.
    assert set(kept["steps"]) == {
        "idle-inference", "idle-ray-clusters", "night-stops", "over-quota-idle",
    }  # fmt: skip
    assert sum(steps.get("act", 0) for steps in kept["steps"].values()) == did["actions"] > 0
