"""Jobs are spans where the standard variables say so, and nothing is loaded where they do not."""

import logging
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from runtime.service.tracing import open_tracing


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    got: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", got
        server.shutdown()


def test_a_job_is_a_span_that_is_sent_at_the_end(
    collector: tuple[str, list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="the extra otel is absent")
    url, got = collector
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
    with open_tracing() as span:
        with span("account"):
            pass
        with pytest.raises(ValueError, match="no such bucket"), span("maintain"):
            raise ValueError("no such bucket")
    sent = b"".join(got)
    assert b"account" in sent
    assert b"maintain" in sent
    assert b"no such bucket" in sent
    assert b"service.name" in sent


def test_without_the_extra_it_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    caplog.set_level(logging.WARNING, "fallow")
    with open_tracing() as span, span("account"):
        pass
    assert caplog.messages == ["no traces"]


def test_without_the_variables_nothing_is_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", raising=False)
    before = {name for name in sys.modules if name.startswith("opentelemetry")}
    with open_tracing() as span, span("account"):
        pass
    assert {name for name in sys.modules if name.startswith("opentelemetry")} == before
