"""A marker in every wrong shape of every setting with a secret: no command prints or stores it."""

import base64
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fallow import redaction
from fallow.settings import load
from runtime.cli import _print_traceback, run
from tests.cli.test_no_secret_is_written import _find_secrets_in_files, _find_secrets_in_rows

MARKER = "marker-7x-secret"
ENCODED = base64.b64encode(f"me:{MARKER}".encode()).decode()
URL = "http://me:{}@127.0.0.1:9/"
SETTINGS = {
    "prometheus.url": URL,
    "prometheus.headers": {"Authorization": "Bearer {}"},
    "prometheus.password": "{}",
    "prometheus.bearer_token": "{}",
    "exporters.targets": [URL],
    "exporters.trainers": ["ml/a=" + URL],
    "exporters.bearer_token": "{}",
    "exporters.trainer_token": "{}",
    "jupyter.servers": ["ml/a=" + URL],
    "jupyter.token": "{}",
    "warehouse.s3": {"access_key_id": "me", "secret_access_key": "{}"},
    "snapshots.s3": {"secret_access_key": "{}"},
    "notices.channels": {"a": {"url": "slack://{}/x/y"}},
    "actions.jupyterhub": {"url": URL, "token": "{}"},
    "service.token": "{}",
    "service.url": URL,
    "dashboard.oidc": {"client_secret": "{}", "metadata_url": URL},
    "dashboard.oidc.cookie_secret": "{}",
    "reports.stores": {"b": {"url": "s3://bucket", "s3": {"secret_access_key": "{}"}}},
    "warehouse.catalog": "postgres:host=127.0.0.1 port=9 dbname=d user=me password={}",
    "warehouse.data": "postgresql://me:{}@127.0.0.1:9/d",
}
SHAPES: dict[str, Callable[[str], Any]] = {
    "as it is": lambda text: text,
    "list": lambda text: [text],
    "mapping": lambda text: {"value": text},
    "key": lambda text: {text: 1},
    "number beside": lambda text: [1, {"x": [text]}],
    "too long": lambda text: text + "x" * 3000,
    "newline": lambda text: f"{text}\r\nX-Other: 1",
    "other scheme": lambda text: text.replace("http://", "ftp://"),
    "one slash": lambda text: text.replace("//", "/"),
    "no scheme": lambda text: text.rpartition("//")[2],
    "percent": lambda text: text.replace("-", "%2D"),
    "bad percent": lambda text: text + "%zz",
    "slash": lambda text: text.replace("marker", "a/b?c#marker"),
    "at": lambda text: text.replace("marker", "p@marker"),
    "quote": lambda text: f"'{text}\"",
    "control": lambda text: f"{text}\x1b[0m\x00",
    "not ascii": lambda text: f"{text}é€",
    "port": lambda text: text.replace(":9", ":99999999"),
    "bracket": lambda text: text.replace("@", "@[::"),
    "query": lambda text: f"{text}?token={MARKER}&password={MARKER}",
    "space": lambda text: f" {text} ",
}  # fmt: skip


def fill(form: Any, shape: Callable[[str], Any]) -> Any:
    if isinstance(form, dict):
        return {key: fill(part, shape) for key, part in form.items()}
    if isinstance(form, list):
        return [fill(part, shape) for part in form]
    return shape(form.replace("{}", MARKER)) if "{}" in form else form


def nest(dotted: str, value: Any) -> dict[str, Any]:
    head, _, rest = dotted.partition(".")
    return {head: nest(rest, value) if rest else value}


def list_leaks(text: str) -> list[str]:
    """Return what stands around each marker, in any form that a reader could turn back."""
    plain = text.replace("%2D", "-").replace("%2d", "-").replace("\\u002d", "-")
    forms = f"{MARKER}|{re.escape(ENCODED)}"
    return [text[max(m.start() - 60, 0) : m.end()] for m in re.finditer(forms, plain)]


@pytest.fixture
def print_all(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """Run a command as `main` does; return all that it printed, a traceback too."""

    def call(*words: str | Path) -> str:
        capfd.readouterr()
        # As in a process of its own: what an earlier command remembered is not known.
        monkeypatch.setattr(redaction, "_values", set())
        redaction._compile_values.cache_clear()
        try:
            run([str(word) for word in words])
        except Exception as error:  # noqa: BLE001  (--debug lets it through)
            _print_traceback(type(error), error, error.__traceback__)
        answer = capfd.readouterr()
        return answer.out + answer.err

    return call


@pytest.mark.parametrize("name", SHAPES)
def test_no_shape_of_a_setting_lets_its_secret_out(
    name: str, print_all: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "fallow.yaml"
    legal: dict[str, Any] = {}
    leaks: dict[str, Any] = {}
    rest = {"home": str(tmp_path / "home")}
    for setting, form in SETTINGS.items():
        value = nest(setting, fill(form, SHAPES[name]))
        file.write_text(json.dumps({**rest, **value}))
        shown = print_all("config", "show", "--debug")
        leaks[setting] = list_leaks(shown)
        if "Traceback" not in shown and not setting.startswith("warehouse"):
            legal.update({key: {**legal.get(key, {}), **part} for key, part in value.items()})
    prometheus = {"retries": 0, **legal.get("prometheus", {})}
    file.write_text(json.dumps({**rest, **legal, "prometheus": prometheus}))
    for words in (["collect", "--once"], ["doctor", "-o", "json"], ["scan", "--debug"]):
        leaks[" ".join(words)] = list_leaks(print_all(*words))
    assert {where: found for where, found in leaks.items() if found} == {}
    monkeypatch.delenv("FALLOW_CONFIG", raising=False)
    if (tmp_path / "home" / "catalog.sqlite").exists():
        settings = load(environ={}, flags={"home": tmp_path / "home"}, file=file).settings
        assert _find_secrets_in_rows(settings) == _find_secrets_in_files(settings.home) == []


@pytest.mark.parametrize(
    "text",
    [
        f"service: {{token: *{MARKER}}}\n",
        f"service: {{token: !{MARKER} x}}\n",
        f"service: {{token: &a{MARKER}}}\n? &a{MARKER}",
        f"%{MARKER} 1\n---\n",
        f"service: {{token: '{MARKER}\n",
        f"service:\n  token: {MARKER}: x\n",
        f"{MARKER}\n",
        f"- {MARKER}\n",
        f"service: {MARKER}\n",
        f"service:\n  token: {MARKER}\n token: 1\n",
    ],
)
def test_no_yaml_of_settings_lets_a_secret_out(
    text: str, print_all: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fallow.yaml").write_text(text)
    for debug in ([], ["--debug"]):
        assert list_leaks(print_all("config", "show", *debug)) == []
    (tmp_path / "fallow.yaml").unlink()
    monkeypatch.setenv("FALLOW_SERVICE__TOKEN", f"[{MARKER}")
    monkeypatch.setenv("FALLOW_PROMETHEUS__HEADERS", f"{{A: *{MARKER}}}")
    for debug in ([], ["--debug"]):
        assert list_leaks(print_all("config", "show", *debug)) == []


@pytest.fixture
def echo() -> Iterator[str]:
    """A server that refuses, and says which headers and which path it was echo with."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            echo = " ".join(
                f"{self.headers} {self.path} {self.headers.get('Authorization')}".split()
            )
            self.send_response(500, echo.encode().decode("latin-1") + "x" * 100)
            self.end_headers()
            self.wfile.write(f"refused: {echo}".encode())

        do_POST = do_GET  # noqa: N815  (the standard library's names)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_a_server_that_echoes_a_request_stores_no_secret(
    echo: str, print_all: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {
        "home": str(tmp_path / "home"),
        "exporters": {"targets": [f"http://me:{MARKER}@{echo}/metrics?token={MARKER}"]},
        "jupyter": {"servers": [f"ml/a=http://me:{MARKER}@{echo}/"], "token": MARKER},
        "prometheus": {"url": f"http://{echo}", "username": "me", "password": MARKER, "retries": 0,
                       "headers": {"Cookie": f"session={MARKER}", "X-Scope-Token": MARKER}},
        "actions": {"jupyterhub": {"url": f"http://{echo}/hub", "token": MARKER}},
    }  # fmt: skip
    file = tmp_path / "fallow.yaml"
    file.write_text(json.dumps(settings))
    for words in (["collect", "--once"], ["doctor"], ["scan", "--since", "1h"]):
        for debug in ([], ["--debug"]):
            shown = print_all(*words, *debug)
            assert "500" in shown
            assert list_leaks(shown) == []
    loaded = load(environ={}, flags={}, file=file).settings
    stored = str(_find_secrets_in_rows(loaded)) + str(_find_secrets_in_files(loaded.home))
    assert list_leaks(stored) == []
    texts = "".join(
        path.read_bytes().decode("latin-1") for path in loaded.home.rglob("*") if path.is_file()
    )
    assert list_leaks(texts) == []


def test_a_port_of_the_marker_is_not_listened_on() -> None:
    with socket.socket() as probe:  # the URLs of these settings lead nowhere
        assert probe.connect_ex(("127.0.0.1", 9)) != 0
