"""The actor judges all cases again once per turn, and each one once more before its own action."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from fallow.action_models import Facts
from fallow.models import Subject
from fallow.settings import Settings
from runtime.operations.acting import plans
from runtime.operations.acting.live_evidence import LiveEvidence
from tests.actions import cases

NAMES = ("web", "api", "batch")


class CountedEvidence(LiveEvidence):
    """Evidence at a time that tests set; it counts what it reads and judges."""

    def __init__(self, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
        self.time = cases.NOW
        self.sources_read: list[datetime] = []
        self.judged_by: list[tuple[str, ...]] = []
        nothing: Any = None  # `gather_cases` is replaced
        super().__init__(
            nothing, settings, self.sources_read.append, lambda: self.time, ticks=lambda: 0.0
        )
        self.facts = [
            cases.facts(finding=cases.finding(id=name, subject=_subject(name))) for name in NAMES
        ]
        monkeypatch.setattr(plans, "gather_cases", self._gather)

    def _gather(
        self, *_: Any, names: Sequence[str] = (), **__: Any
    ) -> tuple[list[Facts], list[str]]:
        self.judged_by.append(tuple(names))
        return self.facts, []


def _subject(name: str) -> Subject:
    return Subject("c", "team-a", "Deployment", name)


@pytest.fixture
def evidence(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> CountedEvidence:
    return CountedEvidence(settings, monkeypatch)


def test_the_workloads_of_a_turn_are_judged_again_by_one_run_of_their_analyzer(
    evidence: CountedEvidence,
) -> None:
    evidence.read_sources(evidence.time)
    evidence.cases(evidence.time)
    for case in evidence.facts:
        evidence.time += timedelta(milliseconds=500)
        assert evidence.again(case, evidence.time) is case
    assert evidence.judged_by == [(), ("idle",)]
    assert len(evidence.sources_read) == 1
    other = cases.facts(finding=cases.finding(analyzer="stalled"))
    evidence.again(other, evidence.time)
    assert evidence.judged_by == [(), ("idle",), ("stalled",)]


def test_they_are_judged_again_when_the_sources_were_read_again_and_in_the_next_turn(
    evidence: CountedEvidence, settings: Settings
) -> None:
    web, api, batch = evidence.facts
    evidence.again(web, evidence.time)
    evidence.time += settings.actions.evidence_age / 6 + timedelta(seconds=1)
    evidence.facts = [api, batch]
    assert evidence.again(web, evidence.time) is None, "it is no case any more"
    assert evidence.again(api, evidence.time) is api
    assert len(evidence.sources_read) == len(evidence.judged_by) == 2
    evidence.cases(evidence.time)
    evidence.facts = [batch]
    assert evidence.again(api, evidence.time) is None
    assert evidence.judged_by == [("idle",), ("idle",), (), ("idle",)]
