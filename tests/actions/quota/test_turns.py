"""A rebalance carried by the loop: one action, whole or not at all, taken back when it did harm."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.loop.actor import Actor
from fallow.action_models import Decision, Facts, Reason
from fallow.models import Finding, Recommendation, Subject
from fallow.window import Window
from tests.actions.loop import site as loop
from tests.actions.quota.site import GPU, move
from tests.servers.quota_webhooks import QUOTA_WEBHOOKS

VOLCANO = "Queue.scheduling.volcano.sh"
MOVES = [move("a", 16, 12), move("b", 4, 8)]
DESERVED = {"root": 20, "a": 16, "b": 4}


class Quotas(loop.Evidence):
    """One finding about a group of Volcano queues."""

    def cases(self, now: datetime) -> list[Facts]:
        return [self._quota(now)]

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        del facts
        return self._quota(now)

    def _quota(self, now: datetime) -> Facts:
        proposal = {"kind": "Queue.volcano", "resource": GPU, "moves": MOVES}
        finding = Finding(
            "f", "quota", "stranded_quota", Subject("c", "", "Quota", "Queue.volcano/root"),
            Window(loop.START - timedelta(days=1), now), "wasteful", "confirmed", 0.9, 96.0, None,
            {},
        )  # fmt: skip
        advice = Recommendation(
            "rebalance-quota", "Quota/root", "they wait", True, parameters={"proposal": proposal}
        )
        return Facts(finding, advice, now, 0.0, owner="platform", seen_until=now - self.age)


def decided(*given: Any) -> Decision:
    made = loop.decide(*given)
    parameters = {
        **given[1].recommendation.parameters,
        "capabilities": ["quota"],
        "allowed_namespaces": [],
        "max_step": 1,
    }
    return msgspec.structs.replace(made, parameters=parameters)


def planned(policies: Any, facts: Any, spent: Any, now: datetime, histories: Any) -> Any:
    made = loop.plan(policies, facts, spent, now, histories)
    known = {f.finding.id: f for f in facts}
    decisions = tuple(
        msgspec.structs.replace(
            d, parameters=decided(policies[0], known[d.finding], spent, now).parameters
        )
        for d in made.decisions
    )
    return msgspec.structs.replace(made, decisions=decisions)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[loop.Site]:
    with loop.Site(tmp_path) as made:
        made.store.webhooks = QUOTA_WEBHOOKS
        made.evidence = Quotas(made.server.url, lambda: made.now)
        for name, gpus in DESERVED.items():
            spec = {"weight": 1, "deserved": {GPU: str(gpus)}}
            made.make(VOLCANO, name, spec, namespace="")
            status = {"state": "Open", "allocated": {GPU: "4"}}
            made.store.patch(VOLCANO, name, "", {"status": status}, subresource="status")
        yield made


def actor(site: loop.Site, **more: Any) -> Actor:
    given: dict[str, Any] = {"planner": planned, "decider": decided, **more}
    return site.actor(**given)


def deserved(site: loop.Site) -> dict[str, int]:
    found = {n: site.store.get(VOLCANO, n, "") for n in DESERVED}
    return {n: int(q["spec"]["deserved"][GPU]) for n, q in found.items() if q}


def test_a_rebalance_is_one_action_that_is_written_in_order_verified_and_undone(
    site: loop.Site,
) -> None:
    one = actor(site)
    state = site.acted(one)
    assert deserved(site) == {"root": 20, "a": 12, "b": 8}
    assert [w.rpartition("/")[2] for w in site.writes("/queues/")][:2] == ["a", "b"]
    site.pass_time(minutes=3)
    one.turn(dry_run=False)
    assert state.outcome is not None
    assert state.outcome.result == "done"
    assert one.undo(state.action.id, "ann").result == "undone"
    assert deserved(site) == DESERVED
    assert not (site.store.get(VOLCANO, "a", "") or {})["metadata"].get("annotations")


def test_somebody_else_in_between_leaves_all_as_it_was(site: loop.Site) -> None:
    def meanwhile(step: str) -> None:
        if step == "journalled sending 1":
            body = {"spec": {"deserved": {GPU: "3"}}}
            site.store.patch(VOLCANO, "b", "", body, manager="kubectl-edit")

    one = actor(site, pulse=meanwhile)
    site.told_and_waited(one)
    one.turn(dry_run=False)
    (result,) = one.record.actions.values()
    assert result.outcome is not None
    assert result.outcome.result == "failed"
    assert deserved(site) == {"root": 20, "a": 16, "b": 3}, "theirs stays, ours is gone"


def test_harm_that_shows_later_is_taken_back_by_the_loop(site: loop.Site) -> None:
    harm: list[Reason] = []

    one = actor(site, reviewer=lambda _action, _now: tuple(harm) or None)
    state = site.done(one)
    assert deserved(site)["a"] == 12
    harm.append(Reason("worsened", "givers waited for what they gave"))
    site.pass_time(hours=30)
    one.turn(dry_run=False)
    assert state.outcome is not None
    assert state.outcome.result == "failed"
    assert deserved(site) == DESERVED
