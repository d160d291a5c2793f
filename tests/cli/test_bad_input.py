"""Bad input, through the command line: one line, the documented exit code, nothing half-written."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

Fallow = Callable[..., Any]
EMPTY = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
ANSWERS: dict[str, tuple[int, bytes]] = {
    "unauthorized": (401, b"no"),
    "broken": (500, b"oops"),
    "html": (200, b"<!doctype html><html>login</html>"),
    "nothing": (200, b""),
    "no-dcgm": (200, EMPTY),
    "half": (200, EMPTY[:40]),
    "not-found": (404, b"not here"),
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """A server whose first path segment says how it misbehaves."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = ANSWERS[self.path.split("/")[1]]
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  (the standard library's names)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def check(ran: Any, code: int, *words: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    lines = [line for line in ran.err.splitlines() if not line.startswith("{")]
    assert lines[0].startswith("fallow: "), ran.err
    assert len(lines) <= 2, ran.err
    assert all(line.startswith("hint: ") for line in lines[1:])
    assert "Traceback" not in ran.err
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize(
    ("how", "code", "word"),
    [
        ("unauthorized", 1, "401"),
        ("broken", 75, "500"),
        ("html", 1, "HTML"),
        ("nothing", 1, "empty answer"),
        ("no-dcgm", 1, "no GPU telemetry"),
        ("half", 75, "cut short"),
        ("not-found", 1, "404"),
    ],
)
def test_a_prometheus_that_misbehaves(
    *, fallow: Fallow, server: str, monkeypatch: pytest.MonkeyPatch, how: str, code: int, word: str
) -> None:
    monkeypatch.setenv("FALLOW_PROMETHEUS__RETRIES", "0")
    check(fallow("scan", "--prometheus", f"{server}/{how}", "--since", "1h"), code, word)


@pytest.mark.parametrize(
    ("url", "code", "word"),
    [
        ("http://127.0.0.1:9", 75, "127.0.0.1:9"),
        ("ftp://host", 2, "ftp"),
        ("host:9090", 2, "http"),
        ("http://no-such-host.invalid", 75, "no-such-host.invalid"),
    ],
)
def test_an_address_that_leads_nowhere(
    fallow: Fallow, monkeypatch: pytest.MonkeyPatch, url: str, code: int, word: str
) -> None:
    monkeypatch.setenv("FALLOW_PROMETHEUS__RETRIES", "0")
    check(fallow("scan", "--prometheus", url, "--since", "1h"), code, word)


def test_scan_wants_an_address(fallow: Fallow) -> None:
    check(fallow("scan"), 2, "--prometheus")


SAMPLES = ["--columns", "workload=pod,ts=ts,gpu_util_pct=util", "--interval", "60s"]


@pytest.fixture
def parquet(tmp_path: Path) -> Path:
    path = tmp_path / "samples.parquet"
    rows = {"pod": ["a", "a"], "ts": [1_700_000_000, 1_700_000_060], "util": [0.0, 1.0]}
    pq.write_table(pa.table(rows), path)
    return path


def test_a_truncated_parquet_leaves_nothing_behind(fallow: Fallow, parquet: Path) -> None:
    whole = parquet.read_bytes()
    parquet.write_bytes(whole[: len(whole) // 2])
    check(fallow("import", "samples", parquet, *SAMPLES), 2, "samples.parquet")
    assert fallow("warehouse", "query", "SELECT count(*) FROM sample").code in (0, 1)
    parquet.write_bytes(whole)
    assert fallow("import", "samples", parquet, *SAMPLES).code == 0
    counted = fallow("warehouse", "query", "SELECT count(*) AS n FROM sample", "-o", "csv")
    assert counted.out == "n\n2\n"


@pytest.mark.parametrize(
    ("words", "word"),
    [
        (["import", "samples", "absent.parquet", *SAMPLES], "absent.parquet"),
        (["import", "samples", "{file}", "--columns", "workload=pod,ts=when,gpu_util_pct=util",
          "--interval", "60s"], "when"),
        (["import", "samples", "{file}", "--columns", "workload=pod,ts=ts,gpu_utility=util",
          "--interval", "60s"], "gpu_util_pct"),
        (["import", "samples", "{file}", *SAMPLES, "--rate", "cheap"], "--rate"),
        (["import", "samples", "{file}", *SAMPLES, "--rate", "-1"], "--rate"),
        (["import", "samples", "{file}", *SAMPLES[:2], "--interval", "0s"], "duration"),
        (["import", "kubectl", "{file}"], "samples.parquet"),
        (["import", "kubectl", "absent.json"], "absent.json"),
        (["import", "openb", "--nodes", "{file}", "--pods", "{file}"], "samples.parquet"),
    ],
)  # fmt: skip
def test_a_file_that_does_not_fit(
    fallow: Fallow, parquet: Path, words: list[str], word: str
) -> None:
    check(fallow(*(w.replace("{file}", str(parquet)) for w in words)), 2, word)


def test_an_unwritable_home(fallow: Fallow, parquet: Path, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    ran = fallow("import", "samples", parquet, *SAMPLES, "--home", blocked / "home")
    check(ran, 1, "file")


def test_a_warehouse_that_is_not_there(fallow: Fallow) -> None:
    for words in (
        ["spend"],
        ["analyze", "idle"],
        ["explain", "abc"],
        ["warehouse", "status"],
        ["warehouse", "query", "SELECT 1"],
    ):
        check(fallow(*words), 1, "no warehouse")


def test_a_question_that_makes_no_sense(fallow: Fallow, parquet: Path) -> None:
    assert fallow("import", "samples", parquet, *SAMPLES).code == 0
    for words, word in (
        (["explain", "feedbeef"], "feedbeef"),
        (["warehouse", "query", "DROP TABLE sample"], "SELECT"),
        (["warehouse", "query", "SELECT * FROM nowhere"], "nowhere"),
        (["spend", "--window", "soon"], "duration"),
        (["spend", "--window", "1d/2d"], "before"),
        (["spend", "--cluster", "elsewhere"], "elsewhere"),
    ):
        check(fallow(*words), 2, word)


def test_a_second_writer_is_asked_to_wait(fallow: Fallow, parquet: Path, tmp_path: Path) -> None:
    from fallow.settings import load  # noqa: PLC0415  (the engine is this test's own)
    from warehouse.lake import Warehouse  # noqa: PLC0415

    home = tmp_path / "home"
    settings = load(environ={}, flags={"home": home}).settings
    with Warehouse.open(settings, write=True):
        check(fallow("import", "samples", parquet, *SAMPLES, "--home", home), 75)
    assert fallow("import", "samples", parquet, *SAMPLES, "--home", home).code == 0


def test_up_wants_a_source_and_a_port_that_can_be_bound(
    fallow: Fallow, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(fallow("up"), 2, "prometheus.url")
    monkeypatch.setenv("FALLOW_EXPORTERS__TARGETS", '["http://127.0.0.1:9/metrics"]')
    check(fallow("up", "--listen", "nowhere"), 2, "host:port")
    check(fallow("up", "--listen", "192.0.2.1:1"), 2, "192.0.2.1:1")


def test_a_warehouse_of_a_newer_fallow_is_refused_and_left_alone(
    fallow: Fallow, parquet: Path, tmp_path: Path
) -> None:
    from fallow.settings import load  # noqa: PLC0415  (the engine is this test's own)
    from warehouse.lake import Warehouse  # noqa: PLC0415

    home = tmp_path / "home"
    settings = load(environ={}, flags={"home": home}).settings
    with Warehouse.open(settings, write=True) as warehouse, warehouse.transaction() as cursor:
        cursor.execute("INSERT INTO schema_version (version) VALUES (999)")
    for words in (["spend"], ["import", "samples", parquet, *SAMPLES]):
        check(fallow(*words, "--home", home), 2, "newer")
