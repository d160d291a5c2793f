"""An odd answer costs one source: it is down in words, and the others' rows stay equal."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from collectors.exporters import ExporterCollector
from collectors.jupyter import JupyterCollector
from fallow.protocols import Collector
from fallow.settings import Settings
from fallow.settings.collectors import ExporterSettings, JupyterSettings
from fallow.window import Window
from runtime.operations.doctor.source_checks import check_exporters
from tests.servers.odd_answers import (
    OddServer,
    Script,
    list_wire_oddities,
    say_body,
    serve_odd,
)

WINDOW = Window(datetime(2026, 11, 20, tzinfo=UTC), datetime(2026, 11, 21, tzinfo=UTC))
WITHIN = timedelta(seconds=3)  # those that fall silent hold a turn so long
LONG = b"9" * 5000
Rows = dict[str, list[dict[str, Any]]]
KERNELS = (
    b'[{"execution_state":"idle","last_activity":"2026-11-20T11:00:00Z"}]',
    b'{"last_activity":"2026-11-20T11:00:00Z","connections":2}',
)
METRICS = b'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n"} 50\n'
PROGRESS = b"train_global_step 7\n"
TIMES = {
    "a time without zone": b'"2026-11-20T11:00:00"',
    "a time before the calendar": b'"0001-01-01T00:00:00+14:00"',
    "a time beyond the calendar": b'"9999-12-31T23:59:59-14:00"',
    "a time as a number": b"1e308",
    "a time that is none": b'"yesterday"',
}
KERNEL_BODIES = {
    "JSON 100,000 deep": b"[" * 100_000,
    "JSON 100,000 deep in a field": b'[{"x":' + b'{"x":' * 100_000,
    "NaN": b'[{"last_activity":NaN}]',
    "a number of 5,000 digits": LONG,
    "an object": b'{"message":"hello"}',
    "null": b"null",
    "a list of null": b"[null]",
    "a state as a list": b'[{"execution_state":[]}]',
    "bad UTF-8 in a text": b'[{"execution_state":"\xff\xfe"}]',
    "half a surrogate": b'[{"execution_state":"\\ud800"}]',
    **{name: b'[{"last_activity":%s}]' % text for name, text in TIMES.items()},
}
STATUS_BODIES = {
    "a list as status": b"[]",
    **{f"connections: {text[:8]!r}": b'{"connections":%s}' % text
       for text in (b"-1", b"1.5", b"1e400", b"9223372036854775808", LONG, b'"2"', b"true", b"[]")},
    **{f"status: {name}": b'{"last_activity":%s}' % text for name, text in TIMES.items()},
}  # fmt: skip
EXPOSITIONS = {
    "a million empty lines": b"\n" * 1_000_000,
    "a million comments": b"#\n" * 1_000_000,
    "60,000 samples": b"x 1\n" * 60_000,
    "a line of 900 kB": b'x{a="' + b"\\\\" * 450_000 + b'"} 1\n',
    "braces": b"{" * 900_000 + b"\n",
    "a value of 5,000 digits": b"train_global_step " + LONG + b"\n",
    "infinity": b"train_global_step +Inf\n",
    "a sum that overflows": b'train_global_step{r="0"} 1e308\ntrain_global_step{r="1"} 1.7e308\n',
}


def answer_kernels(body: bytes, status: bytes = KERNELS[1]) -> dict[str, Script]:
    """Return a notebook server's answers by path."""
    return {"kernels": say_body(body), "status": say_body(status), "terminals": say_body(b"[]")}


def collect(collector: Collector) -> Rows:
    """Collect once; the time that an answer took is no part of it."""
    rows: Rows = {}
    for batch in collector.collect(WINDOW):
        rows.setdefault(batch.table, []).extend(batch.rows.to_pylist())
    for row in rows.get("scrape", ()):
        row |= {"seconds": None, "until": None}
    return rows


@contextmanager
def serving(servers: Mapping[str, Mapping[str, Script] | Script]) -> Iterator[dict[str, OddServer]]:
    """Serve each of them on an address of its own."""
    with ExitStack() as stack:

        def serve(answer: Mapping[str, Script] | Script) -> OddServer:
            if isinstance(answer, Mapping):
                return stack.enter_context(serve_odd(answer.__getitem__))
            return stack.enter_context(serve_odd(lambda _path: answer))

        yield {name: serve(answer) for name, answer in servers.items()}


def check(honest: Rows, mixed: Rows, odd: Mapping[str, OddServer], table: str) -> None:
    """Check that each odd server is one failed scrape, and that the honest rows are equal."""
    by_target = {row["target"]: row for row in mixed["scrape"]}
    assert [row for row in mixed["scrape"] if row in honest["scrape"]] == honest["scrape"]
    assert mixed[table] == honest[table]
    names = {server.url: name for name, server in odd.items()}
    failed = {
        name: row
        for target, row in by_target.items()
        if (name := next((n for url, n in names.items() if target.startswith(url)), ""))
    }
    assert failed.keys() == odd.keys()
    for name, row in failed.items():
        assert not row["up"], name
        assert row["error"], name
        assert len(row["error"]) <= 340, name
        assert row["error"].isprintable(), (name, row["error"])


@pytest.fixture
def elsewhere() -> Iterator[OddServer]:
    """Yield a server to which odd ones redirect: nobody may ask it."""
    with serve_odd(lambda _path: say_body(b"[]")) as server:
        yield server
    assert not [request for request in server.requests if b"redirected" in request]


def test_a_notebook_server_costs_itself_alone(now: Any, elsewhere: OddServer) -> None:
    odd: dict[str, Mapping[str, Script] | Script] = {
        **list_wire_oddities(elsewhere.url),
        **{name: answer_kernels(body) for name, body in KERNEL_BODIES.items()},
        **{name: answer_kernels(KERNELS[0], body) for name, body in STATUS_BODIES.items()},
    }

    def poll(servers: Mapping[str, OddServer]) -> Rows:
        named = [f"ml/p-{n}={server.url}/" for n, server in enumerate(servers.values())]
        settings = JupyterSettings(servers=named, token=SecretStr("s3cret"), timeout=WITHIN)
        return collect(JupyterCollector(settings, "c", lambda: now))

    first = {"first": answer_kernels(KERNELS[0]), "second": answer_kernels(KERNELS[0])}
    with serving(first) as honest, serving(odd) as strange:
        both = poll(honest)
        assert [row["pod"] for row in both["notebook_sample"]] == ["p-0", "p-1"]
        check(both, poll(honest | strange), strange, "notebook_sample")


@pytest.mark.parametrize("kind", ["targets", "trainers"])
def test_an_exporter_costs_itself_alone(now: Any, elsewhere: OddServer, kind: str) -> None:
    bodies = {name: say_body(body) for name, body in EXPOSITIONS.items()}
    odd: dict[str, Mapping[str, Script] | Script] = {**list_wire_oddities(elsewhere.url), **bodies}
    good, table = (METRICS, "sample") if kind == "targets" else (PROGRESS, "progress_sample")

    def scrape(servers: Mapping[str, OddServer]) -> Rows:
        urls = [server.url for server in servers.values()]
        if kind == "trainers":
            urls = [f"ml/p-{n}={url}" for n, url in enumerate(urls)]
        settings = ExporterSettings.model_validate(
            {kind: urls, "timeout": WITHIN, "bearer_token": "s3cret", "body_size_limit": 1 << 20}
        )
        return collect(ExporterCollector(settings, "c", lambda: now))

    with serving({"a": say_body(good), "b": say_body(good)}) as honest, serving(odd) as strange:
        check(scrape(honest), scrape(honest | strange), strange, table)


def test_a_token_goes_to_its_own_list_of_targets_alone(now: Any) -> None:
    answers = {"gpu": say_body(METRICS), "trainer": say_body(PROGRESS)}
    sent: list[list[bool]] = []
    with serving(answers) as servers:
        for own in ("", "trainer-s3cret"):
            settings = ExporterSettings.model_validate(
                {
                    "targets": [servers["gpu"].url],
                    "trainers": [f"ml/p={servers['trainer'].url}"],
                    "bearer_token": "s3cret",
                    "trainer_token": own,
                }
            )
            collect(ExporterCollector(settings, "c", lambda: now))
            list(check_exporters(Settings(exporters=settings), now))
            sent += [
                [b"Bearer s3cret" in request for request in servers["gpu"].requests],
                [b"Bearer" in request for request in servers["trainer"].requests],
                [b"trainer-s3cret" in request for request in servers["trainer"].requests],
            ]
            for server in servers.values():
                server.requests.clear()
    # A scrape, another one by `doctor`, and its look at the exporter's clock.
    assert sent == [[True] * 3, [False] * 2, [False] * 2, [True] * 3, [True] * 2, [True] * 2]
