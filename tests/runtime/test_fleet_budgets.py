"""A budget of the whole fleet over a real PostgreSQL: two actors, one catalog, one sum."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from actions.journal.warehouse_copy import copy_journal
from actions.loop.other_clusters import (
    COPY_AGE,
    ActorFacts,
    CatalogActors,
    explain_unknown,
    read_other_actions,
)
from actions.policy.budgets import BudgetUsage, find_blocks
from actions.policy.model import ActionBudget, Policy, PolicyAmount
from fallow.action_models import Decision, Facts
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from tests.actions.loop.site import POLICY, START, Site, decide
from tests.servers import postgres
from warehouse.lake import Warehouse
from warehouse.leases import CatalogLease

ONE_A_DAY = ActionBudget(workloads=PolicyAmount(Decimal(1)), scope="fleet")


class Member:
    """One cluster of the fleet: its site, and its actor over the shared catalog."""

    def __init__(self, folder: Path, name: str, catalog: str) -> None:
        folder = folder / name
        folder.mkdir()
        self.site = Site(folder)
        self.settings: Settings = load(
            environ={"FALLOW_HOME": str(folder), "FALLOW_WAREHOUSE__CATALOG": catalog},
            flags={"cluster": name, "warehouse.data": str(folder.parent / "data")},
        ).settings
        self.lake = Warehouse.open(self.settings, write=True)

    def __enter__(self) -> Self:
        self.site.__enter__()
        self.site.deployment()
        self.journal = self.site.journal()
        self.others = CatalogActors(
            self.lake,
            self.settings,
            lambda: copy_journal(self.journal, self.lake, self.settings.cluster),
        )
        self.actor = self.site.actor(
            policies=[msgspec.structs.replace(POLICY, budgets=(ONE_A_DAY,))],
            decider=decide_within,
            others=self.others,
        )
        return self

    def __exit__(self, *_: object) -> None:
        self.site.close()
        self.lake.close()

    def act(self) -> list[tuple[str, str]]:
        """Tell, wait for the grace period and act; return results and reasons."""
        self.site.told_and_waited(self.actor)
        report = self.actor.turn(dry_run=False)
        return [(s.result, "; ".join(r.text for r in s.reasons)) for s in report.steps]


def decide_within(policy: Policy, case: Facts, usage: BudgetUsage, now: datetime) -> Decision:
    """Decide as the loop's tests do, and within the policy's budgets."""
    decision = decide(policy, case, usage, now)
    blocks = find_blocks(policy, case, usage, now)
    if decision.step != "act" or decision.ruling != "allow" or not blocks:
        return decision
    reasons = tuple(block.reason for block in blocks)
    return msgspec.structs.replace(decision, ruling="hold", reasons=reasons)


@pytest.fixture
def fleet(database_server: postgres.Server, tmp_path: Path) -> Iterator[tuple[Member, Member]]:
    catalog = database_server.catalog(f"lake{abs(hash(tmp_path)) % 10**9}")
    with Member(tmp_path, "east", catalog) as east, Member(tmp_path, "west", catalog) as west:
        yield east, west


def test_what_one_cluster_spends_is_spent_in_the_other(fleet: tuple[Member, Member]) -> None:
    east, west = fleet
    assert east.act() == [("acted", "")]
    ((result, why),) = west.act()
    assert result == "held"
    assert why == "workloads 1 per 1d in all clusters: 1 of 1 taken, 1 more asked"
    assert (east.site.replicas(), west.site.replicas()) == (0, 2)
    # A day later the act of the other cluster counts no more.
    east.others.copied()
    west.site.pass_time(hours=24)
    report = west.actor.turn(dry_run=False)
    assert [step.result for step in report.steps] == ["acted"]


def test_a_cluster_that_ended_in_the_middle_of_an_act_leaves_the_others_waiting(
    fleet: tuple[Member, Member],
) -> None:
    east, west = fleet
    crashed = east.others.alone()
    crashed.__enter__()  # a process that is killed here never leaves
    ((result, why),) = west.act()
    assert (result, west.site.replicas()) == ("held", 2)
    assert "spends from a budget of the whole fleet now" in why
    with pytest.raises(TemporaryError, match="the actor of east"), west.others.alone():
        pass
    unknown = read_other_actions(west.lake, west.settings, START)
    assert unknown.uses is None
    assert unknown.unknown.startswith("east began to act")
    crashed.__exit__(None, None, None)
    assert read_other_actions(west.lake, west.settings, START).uses == ()
    report = west.actor.turn(dry_run=False)
    assert [step.result for step in report.steps] == ["acted"]


def test_a_journal_whose_actor_says_nothing_is_unknown_until_its_cluster_is_retired(
    fleet: tuple[Member, Member],
) -> None:
    east, west = fleet
    east.act()
    with east.others.alone():
        pass
    forget(west.lake)
    unknown = read_other_actions(west.lake, west.settings, START)
    assert unknown.uses is None
    assert unknown.unknown == "east has a journal, and no actor that says when it was copied"
    acting = west.settings.actions.model_copy(update={"retired_clusters": ["east"]})
    retired = west.settings.model_copy(update={"actions": acting})
    counted = read_other_actions(west.lake, retired, START)
    assert counted.uses is not None
    assert [use.policy for use in counted.uses] == [POLICY.name]


def forget(lake: Warehouse) -> None:
    """Remove what actors say, as a catalog of an older Fallow has it."""
    sql = "DELETE FROM fallow_lease"
    with lake.catalog_cursor() as cursor:
        cursor.execute(f"CALL postgres_execute('__ducklake_metadata_lake', '{sql}')")


@pytest.mark.parametrize(
    ("age_s", "every_s", "facts", "unknown"),
    [
        (COPY_AGE.total_seconds(), 60.0, {}, False),
        (COPY_AGE.total_seconds() + 1, 60.0, {}, True),
        (3 * 3600.0, 3600.0, {}, False),
        (3 * 3600.0 + 1, 3600.0, {}, True),
        (1e9, 60.0, {"ended": True}, False),
        (1.0, 60.0, {"acting": True}, True),
    ],
)
def test_a_copy_is_known_for_ten_minutes_or_three_turns(
    age_s: float, every_s: float, facts: dict[str, Any], *, unknown: bool
) -> None:
    said = msgspec.json.encode(ActorFacts("east", every_s, **facts)).decode()
    at = datetime(2026, 11, 20, tzinfo=UTC) - timedelta(seconds=age_s)
    lease = CatalogLease("actor/east", "actor/east", said, at, valid=True, age_s=age_s)
    assert bool(explain_unknown(lease)) is unknown


def test_an_embedded_catalog_has_no_other_actor(tmp_path: Path) -> None:
    settings = load(environ={}, flags={"home": tmp_path, "cluster": "c"}).settings
    with Warehouse.open(settings, write=True) as lake:
        actors = CatalogActors(lake, settings, lambda: None)
        with actors.alone():
            assert actors.add_usage(BudgetUsage(), START).elsewhere == ()
        actors.copied()
        actors.end()
