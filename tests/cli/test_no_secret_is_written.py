"""Markers in every setting that can hold a secret: none is in what Fallow prints or stores."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from actions.journal import event_types
from actions.notices.channels import ChannelNotifier
from fallow import tables
from fallow.settings import Settings, load
from fallow.tables import Batch
from fallow.window import Window
from runtime.cli import run
from runtime.operations.accounting import pipeline
from tests.actions.loop.site import Site
from tests.cli.conftest import Fallow
from warehouse.lake import Warehouse

EVERY = re.compile(r"[Mm]arker-?[a-z0-9]+-secret")


def _list_markers(text: str) -> list[str]:
    return sorted(set(EVERY.findall(text)))


def _find_free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@pytest.fixture
def settings_file(tmp_path: Path) -> Path:
    """Return a settings file with a marker in every place for a secret; no server answers."""
    at = f"127.0.0.1:{_find_free_port()}"
    settings = {
        "home": str(tmp_path / "home"),
        "prometheus": {
            "url": f"http://me:marker-prometheusurl-secret@{at}/p",
            "headers": {
                "Authorization": "Bearer marker-header-secret",
                "X-Api-Key": "marker-apikey-secret",
            },
            "username": "me",
            "password": "marker-password-secret",
            "bearer_token": "marker-bearer-secret",
            "retries": 0,
        },
        "exporters": {
            "targets": [
                f"http://me:marker-target-secret@{at}/metrics",
                f"http://{at}/metrics?token=marker-query-secret",
            ],
            "trainers": [f"ml/a=http://me:marker-trainer-secret@{at}/progress"],
        },
        "jupyter": {
            "servers": [f"ml/ada-0=http://me:marker-server-secret@{at}/"],
            "token": "marker-jupyter-secret",
        },
        "warehouse": {"s3": {"secret_access_key": "marker-s3key-secret", "access_key_id": "me"}},
        "notices": {
            "channels": {"a": {"url": f"json://me:marker-channel-secret@{at}/x"}},
            "default": ["a"],
        },
        "service": {"token": "marker-service-secret"},
        "dashboard": {
            "oidc": {
                "client_secret": "marker-client-secret",
                "cookie_secret": "marker-cookie-secret-marker-cookie-secret",
            }
        },
        "reports": {
            "stores": {
                "b": {"url": "s3://bucket-b", "s3": {"secret_access_key": "marker-store-secret"}}
            }
        },
    }
    path = tmp_path / "fallow.yaml"
    path.write_text(json.dumps(settings))
    return path


def _find_secrets_in_rows(settings: Settings) -> list[tuple[str, str]]:
    with Warehouse.open(settings) as warehouse:
        return [
            (table, marker)
            for table in tables.list_table_names()
            for marker in _list_markers(str(warehouse.query(f'FROM "{table}"').to_pylist()))
        ]


def _find_secrets_in_files(home: Path) -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(home)), marker)
        for path in sorted(home.rglob("*"))
        if path.is_file()
        for marker in _list_markers(path.read_bytes().decode("latin-1"))
    ]


COMMANDS = [
    ["config", "show"],
    ["config", "show", "-o", "json"],
    ["config", "show", "-o", "csv"],
    ["collect", "--once"],
    ["doctor"],
    ["doctor", "-o", "json"],
    ["scan", "--window", "1h"],
    ["scan", "--window", "1h", "--debug"],
    ["warehouse", "status"],
    ["warehouse", "query", "FROM scrape", "-o", "json"],
]


def test_no_secret_of_the_settings_is_printed_or_stored(
    settings_file: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(settings_file.parent)
    leaks, codes = {}, {}
    for words in COMMANDS:
        try:
            code: Any = run([*words, "--config", str(settings_file)])
        except Exception as error:  # noqa: BLE001  (--debug lets it through to the hook of main)
            code = type(error).__name__
        answer = capfd.readouterr()
        codes[" ".join(words)] = code
        if markers := _list_markers(answer.out + answer.err):
            leaks[" ".join(words)] = markers
    assert leaks == {}
    assert codes["config show"] == 0
    settings = load(file=settings_file, environ={}).settings
    assert _find_secrets_in_rows(settings) == []
    assert _find_secrets_in_files(settings.home) == []
    with Warehouse.open(settings) as warehouse:
        rows = warehouse.query("SELECT target, error FROM scrape").to_pylist()
    assert len(rows) >= 4
    assert all(row["error"] for row in rows)


def test_a_traceback_has_no_password_of_postgresql(process: Fallow, tmp_path: Path) -> None:
    catalog = (
        f"postgres:dbname=d host=127.0.0.1 port={_find_free_port()} "
        "user=u password=marker-catalog-secret"
    )
    path = tmp_path / "catalog.yaml"
    path.write_text(json.dumps({"warehouse": {"catalog": catalog}, "home": str(tmp_path / "h")}))
    shown = process("config", "show", "--config", path)
    failed = process("warehouse", "status", "--config", path, "--debug")
    assert shown.code == 0
    assert "user=u password=***" in shown.out
    assert failed.code == 1
    assert failed.err.count("Traceback (most recent call last)") >= 1
    assert "127.0.0.1" in failed.err
    assert _list_markers(shown.out + shown.err + failed.out + failed.err) == []


def test_a_settings_file_that_is_no_yaml_is_not_quoted(fallow: Fallow, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("service:\n  token: marker-yaml-secret: [\n")
    answer = fallow("config", "show", "--config", path)
    assert answer.code == 2
    assert "line 2" in answer.err
    assert _list_markers(answer.err) == []


def _ask(url: str) -> str:
    """Return an answer with its headers, also that of a refusal; empty = nothing answers yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return f"{answer.headers}{answer.read().decode()}"
    except urllib.error.HTTPError as refusal:
        with refusal:
            return f"{refusal.headers}{refusal.read().decode()}"
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return ""


COLLECTED = re.compile(r'^fallow_up\{collector="(exporters|prometheus)"\} [01]', re.MULTILINE)


def test_no_secret_is_in_what_a_running_service_answers_or_logs(
    settings_file: Path, tmp_path: Path
) -> None:
    url = f"http://127.0.0.1:{_find_free_port()}"
    words = ["up", "--role", "collector", "--role", "analyzer", "--role", "actor"]
    command = [sys.executable, "-c", "from runtime.cli import main; main()", *words]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FALLOW_")}
    environ["FALLOW_SERVICE__LISTEN"] = url.removeprefix("http://")
    log = tmp_path / "log"
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [*command, "--config", str(settings_file)],
            env=environ, cwd=tmp_path, stdout=output, stderr=output,
        ) as service,
    ):  # fmt: skip
        try:
            end = time.monotonic() + 60
            while len(COLLECTED.findall(_ask(f"{url}/metrics"))) < 2:
                assert service.poll() is None, log.read_text()
                assert time.monotonic() < end, log.read_text()
                threading.Event().wait(0.1)
            answers = [_ask(f"{url}/{path}") for path in ("metrics", "healthz", "readyz", "v1/no")]
        finally:
            service.terminate()
    assert "fallow_up" in answers[0]
    assert _list_markers("".join(answers)) == []
    assert log.read_text()
    assert _list_markers(log.read_text()) == []
    settings = load(file=settings_file, environ={}).settings
    assert _find_secrets_in_files(settings.home) == []


REPORTS = [
    (who, form)
    for who, forms in (("finance", ("md", "csv", "html", "focus")), ("sre", ("md", "html")))
    for form in forms
]


def test_no_secret_is_in_reports(
    settings_file: Path, fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fallow("collect", "--once", "--config", settings_file)
    now = datetime.now(UTC).replace(tzinfo=None, microsecond=0)
    minutes = range(90, 0, -1)
    columns: dict[str, Any] = {
        "cluster": ["default"] * 90,
        "ts": [now - timedelta(minutes=minute) for minute in minutes],
        "device": ["GPU-1"] * 90,
        "interval_s": [60.0] * 90,
        "gpu_util_pct": [50.0] * 90,
    }
    window = Window.last(timedelta(hours=3), now=datetime.now(UTC))
    settings = load(file=settings_file, environ={}).settings
    with Warehouse.open(settings, write=True) as warehouse:
        pipeline.ingest(warehouse, [Batch.of("sample", columns)])
        pipeline.account(warehouse, window)
    for who, form in REPORTS:
        file = tmp_path / f"{who}.{form}"
        words = ["report", who, "--window", "3h", "-o", form, "--file", file]
        answer = fallow(*words, "--config", settings_file)
        assert answer.code == 0, answer
        assert file.stat().st_size > 100
        assert _list_markers(answer.out + answer.err + file.read_text()) == []


def test_no_secret_is_in_the_journal_of_an_actor_whose_channel_fails(
    settings_file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    settings = load(file=settings_file, environ={}).settings
    folder = tmp_path / "acting"
    folder.mkdir()
    with Site(folder) as site:
        site.deployment()
        actor = site.actor(notifier=ChannelNotifier(settings.notices))
        actor.turn(dry_run=False)
        site.pass_time(minutes=1)
        actor.turn(dry_run=False)
        rows = site.journal().entries(event_types.NOTIFICATION_FAILED)
        assert rows, "the channel of the settings does not answer"
        assert all(row.document["why"] for row in rows)
        lines = [str(entry) for entry in site.journal().entries()]
    answer = capfd.readouterr()
    assert _list_markers("".join(lines) + answer.out + answer.err) == []
    assert _find_secrets_in_files(folder) == []
