"""An audit that fails is one sentence: on pages, in reports, on the command line, in the log."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest

from dashboards.figures import data_health
from dashboards.page import escape
from fallow.settings import Settings
from fallow.tables import Batch
from fallow.window import Window
from runtime.cli import run
from runtime.operations.accounting import pipeline
from runtime.service import jobs as service_module
from runtime.service.jobs import ServiceLoop
from runtime.service.metrics import SelfMetrics
from tests.copies import copied
from tests.dashboards.drawing import Draw
from tests.rates import every_gpu
from warehouse import audits, dirty
from warehouse.lake import Warehouse

pytestmark = pytest.mark.slow

END = datetime(2026, 11, 16, tzinfo=UTC)
WINDOW = Window.last(timedelta(days=2), now=END)
HOUR = (WINDOW.start + timedelta(hours=5)).replace(tzinfo=None)
CHANGE = """
    UPDATE ledger SET seconds = seconds * $times, usd = usd * $times WHERE bucket = $hour
"""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of two GPUs in two days, accounted hour by hour; only to be read."""
    settings = Settings(home=tmp_path_factory.mktemp("sound") / "home", cluster="test")
    step = timedelta(minutes=5)
    samples = [
        WINDOW.start.replace(tzinfo=None) + n * step for n in range(int(WINDOW.seconds / 300))
    ]
    rows = {
        "cluster": ["test"] * 2 * len(samples),
        "ts": [ts for ts in samples for _ in range(2)],
        "device": ["GPU-0", "GPU-1"] * len(samples),
        "node": ["n1"] * 2 * len(samples),
        "model": ["NVIDIA H100 80GB HBM3"] * 2 * len(samples),
        "interval_s": [300.0] * 2 * len(samples),
        "gpu_util_pct": [0.0] * 2 * len(samples),
    }
    with Warehouse.open(settings, write=True, clock=lambda: END) as warehouse:
        warehouse.ingest([Batch.of("sample", rows), every_gpu("2")])
        pipeline.account(warehouse, WINDOW)
    return settings


@pytest.fixture
def broken(sound: Settings, tmp_path: Path) -> Settings:
    """Return a copy with half of an hour lost two days before the end, as no turn reads again."""
    settings = sound.model_copy(update={"home": copied(sound.home, tmp_path / "home")})
    with (
        Warehouse.open(settings, write=True, clock=lambda: END) as warehouse,
        warehouse.transaction() as cursor,
    ):
        cursor.execute(CHANGE, {"hour": HOUR, "times": 0.5})
        dirty.delete_audits(cursor, HOUR, HOUR + timedelta(hours=1))  # as before an upgrade
    return settings


def test_a_failed_audit_is_the_same_banner_on_every_surface(
    broken: Settings,
    draw: Draw,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Warehouse.open(broken) as warehouse:
        answer = audits.format_banner(audits.run_audits(warehouse, WINDOW))
        assert data_health.read_audits(warehouse, WINDOW) == answer
    assert answer is not None
    assert "ledger_capacity: 2 rows" in answer, "each of the two GPUs lost half of that hour"

    window = f"{WINDOW.start:%Y-%m-%dT%H:%MZ}/{WINDOW.end:%Y-%m-%dT%H:%MZ}"
    wanted = ["--home", str(broken.home), "--cluster", "test", "--window", window]
    for command in (["spend"], ["analyze", "idle"], ["report", "sre", "-o", "md"]):
        assert run([*command, *wanted]) == 0
        spoken = capsys.readouterr()
        text = spoken.out.replace("\\", "") if command[0] == "report" else spoken.err
        assert answer in text, command

    page = draw("data", broken, window=window)
    assert [e.value for e in page.error] == [escape(answer, 900)]
    assert "does not add up" in [m.value for m in page.metric]

    log = Mock()  # a command of this process may have set the loggers up
    monkeypatch.setattr(service_module, "log", log)
    metrics = SelfMetrics()
    with Warehouse.open(broken, write=True, clock=lambda: END) as warehouse:
        service = ServiceLoop(
            warehouse, broken, collectors={}, analyzers={}, metrics=metrics, clock=lambda: END
        )
        for _turn in range(2):  # the hour is long accounted: the next turn still says it
            service.account()
            log.error.assert_called_once_with(answer)
            log.error.reset_mock()
            result = metrics.text().decode()
            assert 'fallow_audit_failures{audit="ledger_capacity"} 2.0' in result
        with warehouse.transaction() as cursor:
            cursor.execute(CHANGE, {"hour": HOUR, "times": 2})
        service.account()
    assert 'fallow_audit_failures{audit="ledger_capacity"} 0.0' in metrics.text().decode()


def test_a_sound_ledger_has_no_banner(sound: Settings) -> None:
    with Warehouse.open(sound) as warehouse:
        assert data_health.read_audits(warehouse, WINDOW) is None
