"""From collectors to the act, over HTTP: what is not seen, and what was just active, never acts."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from actions.journal import event_types
from tests.actions.loop.plant import EVERY, Plant

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
PAST = timedelta(minutes=220)
"""The startup grace, and so long that the reading of ten minutes which the grace cuts in two is
less than 5 % of it: below that coverage nothing acts."""
Making = Callable[[int], Plant]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Making]:
    made: list[Plant] = []

    def plant(size: int) -> Plant:
        made.append(Plant(tmp_path, size).__enter__())
        return made[-1]

    yield plant
    for one in made:
        one.__exit__(None, None, None)


def untouched(plant: Plant) -> bool:
    intents = [e for e in plant.journal().entries() if e.kind == event_types.INTENT]
    return not intents and not plant.writes("/deployments/")


# The one below: a source that does not answer holds. tests/cli/test_acting_whole.py: what rests and
# is seen whole, by exporters and notebooks over HTTP, is stopped.
@pytest.mark.long
@pytest.mark.parametrize("lost", ["jupyter", "exporters"])
def test_what_rests_and_is_seen_whole_is_stopped_once_every_source_has_said_so(
    make: Making, lost: str
) -> None:
    plant = make(2)
    plant.replicas_of("web", 2)
    plant.live(PAST)
    plant.ready()
    away, url = plant.sources.away, plant.sources.url
    first = plant.pods()[0]["metadata"]["name"]
    node = plant.pods()[0]["spec"]["nodeName"]

    path, words = {
        "jupyter": (f"/pods/{first}", " did not answer: HTTP 503 from /api/kernels"),
        "exporters": (f"/nodes/{node}", "/metrics did not answer: HTTP 503"),
    }[lost]
    (line,) = plant.taken(lambda: away.add(path))
    assert line.startswith(f"held: {lost} {url}{path}{words}")
    away.clear()

    assert untouched(plant)
    assert plant.taken() == ["acted: "]
    assert plant.replicas() == 0


def test_a_notebook_that_does_not_answer_or_was_active_65_s_ago_is_left_alone(
    make: Making,
) -> None:
    plant = make(1)
    plant.replicas_of("web", 1)
    plant.live(PAST)
    plant.ready()
    (pod,) = (p["metadata"]["name"] for p in plant.pods())
    away, path = plant.sources.away, f"/pods/{pod}"
    (line,) = plant.taken(lambda: away.add(path))
    assert line.startswith(f"held: jupyter {plant.sources.url}{path} did not answer: HTTP 503")
    away.clear()

    def types() -> None:
        plant.terminal_at[pod] = plant.now - timedelta(seconds=65)

    assert plant.taken(types) == [f"refused: terminal active 1m5s ago ({pod})"]
    assert untouched(plant)


# tests/actions/facts/test_gathering.py: the veto, and the coverage, of replicas without telemetry;
# test_scope.py: nobody is stopped beyond what the evidence is about.
@pytest.mark.long
@pytest.mark.parametrize(
    ("replicas", "seen", "text"),
    [
        (2, 1, "not judged: 1 of 2 replicas has no telemetry: "),
        (5, 1, "not judged: 4 of 5 replicas have no telemetry: "),
    ],
)
def test_replicas_on_nodes_without_an_exporter_are_never_stopped_with_the_idle_one(
    make: Making, replicas: int, seen: int, text: str
) -> None:
    plant = make(replicas)
    nodes = plant.replicas_of("web", replicas)
    assert len(set(nodes)) == replicas
    plant.dark = set(sorted(nodes)[seen:])
    plant.live(PAST)
    plant.ready()
    (facts,) = plant.facts()
    assert facts.coverage is not None
    assert facts.coverage <= seen / replicas + 1e-9
    assert any(veto.startswith(text) for veto in facts.vetoes), facts.vetoes
    assert plant.taken() == []
    plant.live(EVERY)
    assert plant.taken() == []
    assert plant.replicas() == replicas
    assert untouched(plant)
