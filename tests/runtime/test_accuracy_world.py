"""One small world with every quirk on keeps what docs/accuracy.md says of five."""

import pytest

from benchmarks.accuracy import measure_worlds
from benchmarks.accuracy_scores import Score
from benchmarks.accuracy_worlds import FALLOW, measure

# tests/simulator/exporters/test_verdicts.py: each quirk, and all at once; the rules of the peers,
# each by itself: test_accuracy_peers.py.
pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.xdist_group("accuracy")]


@pytest.fixture(scope="module")
def scores() -> dict[str, Score]:
    return {s.judge: s for s in measure(3, gpus=48, days=1.5)}


def test_verdicts_that_may_be_acted_upon_are_right_and_hurt_nobody(
    scores: dict[str, Score],
) -> None:
    ours = scores[FALLOW]
    assert ours.episodes >= 5
    assert ours.precision >= 0.99
    assert ours.harms == ()
    assert ours.recall >= 0.8


def test_the_peers_rules_hurt_in_the_same_world(scores: dict[str, Score]) -> None:
    assert all(len(s.harms) > 0 for name, s in scores.items() if name != FALLOW)
    assert all(s.recall > 0 for s in scores.values())


def test_worlds_in_two_processes_have_the_scores_of_one() -> None:
    one_by_one = [measure(seed, gpus=16, days=0.2) for seed in (1, 2)]
    assert measure_worlds((1, 2), gpus=16, days=0.2) == one_by_one
