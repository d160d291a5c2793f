"""`fallow up` sends the report that was due while it was down, once; `fallow schedule` shows it."""

import email.policy
import json
import threading
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.cli import run
from runtime.operations.accounting import pipeline
from runtime.operations.accounting.prices import read_configured_rates
from runtime.service.delivery.outbox import Outbox, get_outbox_path
from runtime.service.loop import serve
from runtime.service.roles import ServiceRole
from warehouse.lake import Warehouse

WAIT_S = 120


@pytest.fixture
def settings(tmp_path: Path, post: Any, hook: Any) -> Settings:
    """Return settings of a file, over a warehouse of three hours, with a report each morning."""
    mail = f"mailto://127.0.0.1:{post.port}/?from=f@corp.example&to=cfo@corp.example&mode=insecure"
    (tmp_path / "fallow.yaml").write_text(
        f"home: {tmp_path / 'home'}\ncluster: test\n"
        "service: {listen: '127.0.0.1:0'}\nprices: {usd_per_gpu_hour: 2}\n"
        "notices:\n  channels:\n"
        f"    mail: {{url: '{mail}'}}\n    hook: {{url: '{hook.url}'}}\n"
        "reports:\n  schedules:\n"
        "  - {name: daily, audience: finance, format: md, window: 7d, cron: '0 0 * * *',"
        " to: [mail, hook]}\n"
    )
    made = load(file=tmp_path / "fallow.yaml", environ={}).settings
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    begin = midnight - timedelta(hours=6)
    instants = [(begin + timedelta(minutes=m)).replace(tzinfo=None) for m in range(180)]
    count = len(instants)
    sample: dict[str, Any] = {
        "cluster": ["test"] * count, "ts": instants, "device": ["GPU-1"] * count,
        "node": ["n1"] * count, "interval_s": [60.0] * count, "gpu_util_pct": [90.0] * count,
    }  # fmt: skip
    with Warehouse.open(made, write=True) as warehouse:
        warehouse.ingest([Batch.of("sample", sample)])
        pipeline.price(warehouse, read_configured_rates(made, begin))
        pipeline.account(warehouse, Window(begin, midnight))
    return made


def test_what_was_due_while_nothing_ran_is_sent_once_over_two_starts(
    settings: Settings,
    post: Any,
    hook: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(
        "runtime.operations.analysis.analyzer_runs.load_analyzers", lambda _settings: {}
    )
    (schedule,) = settings.reports.schedules
    with Outbox.open(get_outbox_path(settings)) as book:  # an earlier run, three days ago
        book.expect(schedule, datetime.now(UTC) - timedelta(days=3))
    real = Outbox.tidy
    for _ in range(2):
        stop = threading.Event()

        def tidied(self: Outbox, now: datetime, stop: threading.Event = stop) -> None:
            real(self, now)
            if self.latest() and not self.unsettled("waiting"):
                stop.set()

        monkeypatch.setattr(Outbox, "tidy", tidied)
        served = threading.Thread(
            target=serve, args=(settings, stop), kwargs={"roles": [ServiceRole.analyzer]}
        )
        served.start()
        served.join(WAIT_S)
        assert not served.is_alive()
    (content,) = post.is_accepted
    mail: Any = message_from_bytes(content, policy=email.policy.default)
    (attached,) = mail.iter_attachments()
    (posted,) = hook.got
    assert posted["title"] == mail["Subject"]
    assert attached.get_filename() == posted["attachments"][0]["filename"]
    assert "6.00" in attached.get_content()  # three GPU-hours for two dollars each

    config = ("--config", settings.home.parent / "fallow.yaml", "-o", "json")
    assert run(["schedule", "deliveries", *map(str, config)]) == 0
    rows = json.loads(capsys.readouterr().out)["deliveries"]
    assert {(r["destination"], r["state"]) for r in rows} == {("mail", "sent"), ("hook", "sent")}
    assert run(["schedule", "list", *map(str, config)]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["schedules"]
    assert listed["name"] == "daily"
    assert listed["last"] == rows[0]["due"]

    post.to_sender = "451 not now"
    assert run(["schedule", "run", "daily", *map(str, config)]) == 1
    answer = {r["destination"]: r for r in json.loads(capsys.readouterr().out)["deliveries"]}
    assert (answer["mail"]["state"], answer["hook"]["state"]) == ("waiting", "sent")
    assert "451 not now" in answer["mail"]["message"]
    assert run(["schedule", "run", "nightly", *map(str, config)]) == 2
    assert "reports.schedules has: daily" in capsys.readouterr().err
