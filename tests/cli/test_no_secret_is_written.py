"""Markers in every setting that can hold a secret: none is in what Fallow prints or stores."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from fallow import tables
from fallow.settings import Settings, load
from runtime.cli import run
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
            for table in tables.table_names()
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
