"""The service's job `act`: only where enabled, its rows in the warehouse, its lease given up."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from actions.journal import event_types
from actions.loop.protocols import TurnReport
from fallow.errors import TemporaryError, UsageError
from fallow.settings import Settings, load
from fallow.settings.actions import BreakerSettings, CanarySettings
from runtime.operations.acting.actor_turns import open_turns
from runtime.service import loop
from runtime.service.metrics import SelfMetrics
from runtime.service.roles import PARTS
from tests.actions.loop.site import Site
from warehouse.lake import Warehouse

POLICIES = Path(__file__).parents[2] / "policies"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    home = tmp_path / "home"
    home.mkdir()
    with Site(home, datetime.now(UTC).replace(microsecond=0)) as made:
        named = {"cluster": "test", "user": "test"}
        config = {
            "clusters": [{"name": "test", "cluster": {"server": made.server.url}}],
            "users": [{"name": "test", "user": {"token": "t"}}],
            "contexts": [{"name": "test", "context": named}],
            "current-context": "test",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(path))
        import kubernetes.config.kube_config as loader

        # The client reads KUBECONFIG once, when it is imported.
        monkeypatch.setattr(loader, "KUBE_CONFIG_DEFAULT_LOCATION", str(path))
        (tmp_path / "policies").mkdir()
        shutil.copy(POLICIES / "observe-all.yaml", tmp_path / "policies")
        yield made


def settings_of(site: Site, *targets: str) -> Settings:
    flags = {
        "cluster": "c",
        "home": site.folder,
        "exporters.targets": list(targets),
        "exporters.timeout": "1s",
        "actions.enabled": True,
        "actions.policies": site.folder.parent / "policies",
    }
    return load(environ={}, flags=flags).settings


def test_a_turn_of_the_service_freezes_when_exporters_are_down_and_keeps_its_rows(
    site: Site,
) -> None:
    settings = settings_of(site, "http://127.0.0.1:1/metrics")
    reports: list[TurnReport] = []
    with Warehouse.open_in_memory(settings) as lake:
        metrics = SelfMetrics()
        with open_turns(settings, lake, lambda: datetime.now(UTC), reports.append) as turn:
            turn()
            lease = site.get("Lease", "fallow-actor", "fallow")
            assert lease["spec"]["holderIdentity"]
            turn()
        rows = lake.query("SELECT kind, about, actor FROM action ORDER BY seq").to_pylist()
        metrics.record_actor_turn(reports[0])
    assert [r.halted[0].gate for r in reports] == ["breaker", "frozen"]
    assert "100% of 1 targets are down" in reports[0].halted[0].text
    assert rows == [{"kind": event_types.FROZEN, "about": event_types.FLEET, "actor": "breaker"}]
    assert site.get("Lease", "fallow-actor", "fallow")["spec"]["holderIdentity"] == ""
    assert b'fallow_act_halted{gate="breaker"} 1.0' in metrics.text()


def test_the_service_runs_the_canary_and_measures_it(site: Site) -> None:
    settings = settings_of(site, "http://127.0.0.1:1/metrics")
    canary = CanarySettings(image="pause:3.10", timeout=timedelta(seconds=10))
    breaker = BreakerSettings(exporters=1.0)  # the one exporter is down
    acting = settings.actions.model_copy(update={"canary": canary, "breaker": breaker})
    settings = settings.model_copy(update={"actions": acting})
    metrics = SelfMetrics()
    with (
        Warehouse.open_in_memory(settings) as lake,
        open_turns(
            settings,
            lake,
            lambda: datetime.now(UTC),
            metrics.record_actor_turn,
            on_canary=metrics.record_canary,
        ) as turn,
    ):
        text = metrics.text()
        assert b"fallow_canary_period_seconds 21600.0" in text
        assert b"fallow_canary_last_success_timestamp_seconds 1." in text
        assert b"fallow_canary_failures_total 0.0" in text
        turn()  # its namespace is missing
        assert b"fallow_canary_failures_total 1.0" in metrics.text()
        turn()  # it is not tried again before its period is over
        assert b"fallow_canary_failures_total 1.0" in metrics.text()
        rows = lake.query("SELECT document FROM action WHERE kind = 'canary'").to_pylist()
    assert ["is not made" in row["document"] for row in rows] == [True]


def test_nothing_acts_where_it_is_not_enabled(site: Site) -> None:
    settings = load(environ={}, flags={"home": site.folder}).settings
    with (
        Warehouse.open_in_memory(settings) as lake,
        loop._open_act_job(settings, lake, SelfMetrics(), PARTS) as act,
    ):
        assert act is None
    assert not (site.folder / "journal.sqlite").exists()


def test_acting_without_a_source_is_refused_before_it_begins(site: Site) -> None:
    settings = settings_of(site)
    with (
        Warehouse.open_in_memory(settings) as lake,
        pytest.raises(UsageError, match="no source is configured"),
        loop._open_act_job(settings, lake, SelfMetrics(), PARTS),
    ):
        raise AssertionError


def test_acting_on_a_cluster_that_is_away_is_temporary(site: Site) -> None:
    settings = settings_of(site, "http://127.0.0.1:1/metrics")
    site.server.close()
    with (
        Warehouse.open_in_memory(settings) as lake,
        pytest.raises(TemporaryError, match="no answer"),
        loop._open_act_job(settings, lake, SelfMetrics(), PARTS),
    ):
        raise AssertionError
