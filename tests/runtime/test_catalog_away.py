"""PostgreSQL and S3 are away: nothing is stopped, and what people undo, keep and freeze is done."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from actions.journal import JournalState, event_types
from actions.journal.warehouse_copy import copy_journal, read_copied_hashes
from fallow.action_models import Facts
from fallow.settings import Settings, load
from runtime.operations.acting import requests
from runtime.operations.acting.requests import ActionRequests
from runtime.service.api import WriteApi
from runtime.service.endpoint import Endpoint
from runtime.service.metrics import SelfMetrics
from tests.actions.loop.site import SPACE, Evidence, Site, bare
from tests.cli.conftest import Fallow
from tests.cli.conftest import fallow as fallow  # noqa: PLC0414  (a fixture)
from tests.cli.test_acting import cli as cli  # noqa: PLC0414  (a fixture)
from tests.cli.test_acting import done
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)
from tests.runtime.test_api import Asking
from tests.servers import postgres, s3
from warehouse.lake import Warehouse

POLICIES = Path(__file__).parents[2] / "policies"
WEB = f"Deployment/{SPACE}/web"


class Stores(NamedTuple):
    """Settings of a home whose catalog is on PostgreSQL and whose rows are in S3."""

    settings: Settings
    stop: Callable[[], None]
    """Kill both."""
    start: Callable[[], None]
    """Start PostgreSQL; S3 stays away."""


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.serving() as made:
        yield made


@pytest.fixture
def stores(
    server: postgres.Server, site: Site, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stores]:
    environ = {
        "FALLOW_HOME": str(site.folder),
        "FALLOW_CLUSTER": "c",
        "FALLOW_WAREHOUSE__CATALOG": server.catalog(f"lake{abs(hash(site.folder)) % 10**9}"),
    }
    away = False

    def stop() -> None:
        nonlocal away
        away = True
        server.stop()

    def start() -> None:
        nonlocal away
        if away:
            server.start()
        away = False

    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    yield Stores(load(environ=environ).settings, stop, start)
    start()


def journal_is_copied(settings: Settings, site: Site) -> bool:
    with Warehouse.open(settings) as lake:
        copied = [seq for seq, _hash in read_copied_hashes(lake, "c")]
    return copied == [entry.seq for entry in site.journal().entries()]


def test_undo_keep_and_freeze_by_command_need_only_the_journal_and_the_api_server(
    site: Site, cli: Fallow, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, before = done(site)
    with ExitStack() as store:
        url = store.enter_context(s3.serving())
        s3.make_bucket(url, "lake")
        monkeypatch.setenv("FALLOW_WAREHOUSE__DATA", "s3://lake/data")
        monkeypatch.setenv("FALLOW_WAREHOUSE__S3__ENDPOINT", url)
        monkeypatch.setenv("FALLOW_WAREHOUSE__S3__ACCESS_KEY_ID", "k")
        monkeypatch.setenv("FALLOW_WAREHOUSE__S3__SECRET_ACCESS_KEY", "s")
        settings = load().settings
        with Warehouse.open(settings, write=True) as lake:
            copy_journal(site.journal(), lake, "c")
        assert journal_is_copied(settings, site)
    stores.stop()
    ran = cli("apply", "--yes", "--policy", POLICIES)
    assert (ran.code, "cannot be reached" in ran.err) == (75, True), ran
    ran = cli("why-not", WEB, "--policies", POLICIES)
    assert (ran.code, "cannot be reached" in ran.err) == (75, True), ran
    assert cli("undo", result.action.id).code == 0
    assert bare(site.get("Deployment", "web")) == before
    assert cli("keep", WEB).code == 0
    assert cli("freeze", "the catalog is away").code == 0
    assert site.kinds()[-3:] == [event_types.OUTCOME, event_types.KEEP, event_types.FROZEN]
    assert cli("thaw").code == 0


def test_people_are_answered_over_http_and_the_copy_follows_when_the_catalog_is_back(
    site: Site, stores: Stores
) -> None:
    result, before = done(site)
    api = WriteApi("", loopback=True)
    with (
        Warehouse.open(stores.settings, write=True) as lake,
        Endpoint("127.0.0.1:0", SelfMetrics(), api=api) as endpoint,
    ):
        api.people = ActionRequests(stores.settings, lake, lambda: datetime.now(UTC))
        asking = Asking(endpoint, stores.settings, lake, api)
        stores.stop()
        code, answer = asking.post("/v1/undo", {"action": result.action.id, "by": "ann"})
        assert (code, answer.get("result")) == (200, "undone"), answer
        assert bare(site.get("Deployment", "web")) == before
        assert asking.post("/v1/keep", {"workload": WEB, "by": "ann"})[0] == 200
        assert asking.post("/v1/freeze", {"why": "no catalog", "by": "ann"})[0] == 200
        assert (site.folder / "FREEZE").exists()
        stores.start()
        copy_journal(site.journal(), lake, "c")
    assert journal_is_copied(stores.settings, site)


def test_an_undo_is_answered_while_the_catalog_hangs(
    site: Site, server: postgres.Server, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, before = done(site)
    monkeypatch.setattr(requests, "COPY_WAIT_S", 0.1)
    with Warehouse.open(stores.settings, write=True) as lake:
        people = ActionRequests(stores.settings, lake, lambda: datetime.now(UTC))
        with server.hanging():
            assert people.undo(result.action.id, "ann")["result"] == "undone"
            assert bare(site.get("Deployment", "web")) == before
            people.keep(WEB, timedelta(hours=1), "ann")
            people.freeze("it hangs", "ann")
        copy_journal(site.journal(), lake, "c")  # together with the copy that waited
    assert journal_is_copied(stores.settings, site)


class StoredEvidence(Evidence):
    """Evidence of a site that is only as good as a warehouse's catalog."""

    lake: Warehouse

    def read_sources(self, now: datetime) -> None:
        del now
        self.lake.query("SELECT count(*) FROM sample")

    def again(self, facts: Facts, now: datetime) -> Facts | None:
        self.read_sources(now)
        return super().again(facts, now)


def test_nothing_is_stopped_while_the_catalog_is_away_and_the_turn_says_why(
    site: Site, stores: Stores
) -> None:
    evidence = StoredEvidence(site.server.url, lambda: site.now)
    site.evidence = evidence
    site.deployment()
    metrics = SelfMetrics()
    with Warehouse.open(stores.settings, write=True) as lake:
        evidence.lake = lake
        actor = site.actor()
        site.told_and_waited(actor)
        before = site.writes()
        stores.stop()
        report = actor.turn(dry_run=False)
        metrics.record_actor_turn(report)
        (reason,) = report.halted
        assert reason.gate == "evidence"
        assert "the catalog cannot be reached" in reason.text
        assert b'fallow_act_halted{gate="evidence"} 1.0' in metrics.text()
        assert site.writes() == before
        stores.start()
        assert [step.result for step in actor.turn(dry_run=False).steps] == ["acted"]
        # Killed once more, with an action in force: a person's undo does not need it.
        stores.stop()
        (result,) = JournalState(site.journal()).catch_up().actions.values()
        assert actor.undo(result.action.id, "ann").result == "undone"
        assert site.replicas() == 2
