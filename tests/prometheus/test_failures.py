"""How a Prometheus can fail us: the kind of error, its words, its exit code, who tries again."""

import json
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from collectors.prometheus.client import (
    MOST_LATE,
    BudgetSpentError,
    NoStoreError,
    PrometheusClient,
    TooMuchError,
)
from collectors.prometheus.raw import read_samples
from fallow.errors import AuthError, FallowError, SourceError, TemporaryError, UsageError
from fallow.settings.collectors import PrometheusSettings
from fallow.window import Window
from runtime.cli import run
from tests.servers.misbehaving import NAMES, VECTOR, Answer, Misbehaving

Asking = Callable[..., PrometheusClient]
WHEN = datetime(2026, 11, 20, 12, tzinfo=UTC)
HTML = b"<!doctype html><html><body>Sign in</body></html>"
BAD = b'{"status":"error","errorType":"bad_data","error":"parse error: unexpected \\"}\\""}'
LARGE = b'{"status":"error","errorType":"execution","error":"query processing would load too many samples into memory"}'  # noqa: E501
SLOW = (
    b'{"status":"error","errorType":"timeout","error":"query timed out in expression evaluation"}'
)
QUEUE = b'{"status":"error","errorType":"timeout","error":"query timed out in query queue"}'
NO_STORE = (
    b'{"status":"error","errorType":"execution","error":"No StoreAPIs matched for this query"}'
)
POINTS = b'{"status":"error","errorType":"bad_data","error":"exceeded maximum resolution of 11,000 points per timeseries"}'  # noqa: E501
MATRIX = VECTOR.replace(b"vector", b"matrix")
PARTIAL = VECTOR[:-1] + b',"warnings":["fetch from store 10.0.0.7:10901: connection refused"]}'
MISSING = VECTOR.replace(b'"data"', b'"isPartial":true,"data"')
TRIES = 3

FAILURES: dict[str, tuple[Answer, type[FallowError], str, int]] = {
    "unauthorized": (Answer(401, b"no"), AuthError, "HTTP 401", 1),
    "forbidden": (Answer(403, b"<html>no</html>"), AuthError, "HTTP 403", 1),
    "not found": (Answer(404, b"not here"), SourceError, "no Prometheus API", 1),
    "bad query": (Answer(422, BAD), SourceError, "refused the query: parse error", 1),
    "bad request": (Answer(400, BAD), SourceError, "refused the query", 1),
    "too much": (Answer(422, LARGE), TooMuchError, "too many samples", 1),
    "too many points": (Answer(400, POINTS), TooMuchError, "11,000 points", 1),
    "timed out": (Answer(503, SLOW), TooMuchError, "timed out", 1),
    "too large": (Answer(413, b"response larger than the max (9 vs 5)"), TooMuchError, "9 vs 5", 1),
    "queue": (Answer(503, QUEUE), TemporaryError, "query queue", TRIES),
    "gateway": (Answer(504, HTML), TemporaryError, "HTTP 504", TRIES),
    "no store": (Answer(422, NO_STORE), NoStoreError, "No StoreAPIs", 2),
    "slow down": (Answer(429, b"slow down"), TemporaryError, "HTTP 429", TRIES),
    "broken": (Answer(500, b"oops"), TemporaryError, "HTTP 500", TRIES),
    "bad gateway": (Answer(502, HTML), TemporaryError, "HTTP 502", TRIES),
    "away": (Answer(503, b""), TemporaryError, "HTTP 503", TRIES),
    "empty": (Answer(200, b""), SourceError, "empty answer", 1),
    "HTML": (Answer(200, HTML), SourceError, "HTML, not JSON", 1),
    "other JSON": (Answer(200, b'{"ok":true}'), SourceError, "does not answer as Prometheus", 1),
    "text": (Answer(200, b"hello"), SourceError, "does not answer as Prometheus", 1),
    "half": (Answer(200, VECTOR[:40]), TemporaryError, "cut short", TRIES),
    "connection cut": (Answer(200, VECTOR[:40], {}, True), TemporaryError, "cut short", TRIES),
    "partial (Thanos)": (Answer(200, PARTIAL), TemporaryError, "partial", TRIES),
    "partial (VictoriaMetrics)": (Answer(200, MISSING), TemporaryError, "partial", TRIES),
}


@pytest.mark.parametrize("how", FAILURES)
def test_each_failure_has_its_kind_its_words_and_its_tries(
    asking: Asking, server: Misbehaving, how: str
) -> None:
    answer, kind, word, tries = FAILURES[how]
    server.answers = [answer]
    client = asking()
    with pytest.raises(FallowError, match=word) as caught:
        client.query("up", WHEN)
    assert type(caught.value) is kind or (kind is TemporaryError and isinstance(caught.value, kind))
    assert server.url in caught.value.message
    assert client.queries == len(server.asked) == tries


@pytest.mark.parametrize("how", FAILURES)
def test_the_doctor_says_a_failure_and_its_fix_in_one_row_and_goes_on(
    server: Misbehaving,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    answer, kind, word, _ = FAILURES[how]
    server.answers = [answer]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_PROMETHEUS__RETRIES", "0")
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FALLOW_DASHBOARD__LISTEN", "127.0.0.1:0")
    monkeypatch.setenv("FALLOW_SERVICE__LISTEN", "127.0.0.1:0")
    code = run(["doctor", "--prometheus", server.url, "-o", "json"])
    rows = {row["check"]: row for row in json.loads(capsys.readouterr().out)["checks"]}
    assert code == kind.exit_code
    assert rows["server"]["status"] == ("away" if kind is TemporaryError else "bad")
    assert rows["server"]["finding"].startswith(server.url)
    assert word in rows["server"]["finding"]
    assert rows["server"]["next_step"]
    assert rows["home"]["status"] in ("ok", "warn")


def test_a_stretch_without_an_answer_in_time_is_sent_in_halves_and_not_for_ever(
    asking: Asking, server: Misbehaving
) -> None:
    day = Window(WHEN - timedelta(days=1), WHEN)
    server.answers = [Answer(504, HTML)]
    client = asking()
    with pytest.raises(TemporaryError, match="HTTP 504"):
        read_samples(client, "up", day)
    assert client.queries == MOST_LATE + TRIES

    def answer_an_hour(_path: str, parameters: Mapping[str, str]) -> Answer:
        length_ms = int(parameters["query"].removesuffix("ms]").removeprefix("up["))
        return Answer(504, HTML) if length_ms > 3.6e6 else Answer(200, MATRIX)

    server.answering = answer_an_hour
    assert len(read_samples(asking(), "up", day).labels) == 0


def test_the_shortest_stretch_is_queried_again_after_a_gateway_gave_up(
    asking: Asking, server: Misbehaving
) -> None:
    server.answers = [Answer(504, HTML), Answer(200, MATRIX)]
    minute = Window(WHEN - timedelta(minutes=1), WHEN)
    assert len(read_samples(asking(retries=1), "up", minute).labels) == 0


def test_a_query_is_sent_again_where_the_server_was_too_busy_to_name_its_stores(
    asking: Asking, server: Misbehaving
) -> None:
    """Nothing matched a query; whether there are stores at all was not told at first."""
    nothing = {
        "status": "error", "errorType": "execution",
        "error": "No StoreAPIs matched for this query",
    }  # fmt: skip
    empty = Answer(422, json.dumps(nothing).encode())
    server.answers = [empty, Answer(503, HTML), empty, Answer(200, VECTOR)]
    hour = Window(WHEN - timedelta(hours=1), WHEN)
    assert len(read_samples(asking(retries=1), "up", hour).labels) == 0


def test_halves_meet_at_full_minutes(asking: Asking, server: Misbehaving) -> None:
    """A thinned series has one sample a step: a joint within a step would have two."""
    ends: list[float] = []

    def answer_ten_minutes(_path: str, parameters: Mapping[str, str]) -> Answer:
        length_ms = int(parameters["query"].removesuffix("ms]").removeprefix("up["))
        if length_ms > 6e5:
            return Answer(504, HTML)
        ends.append(float(parameters["time"]) + 0.001)
        return Answer(200, MATRIX)

    server.answering = answer_ten_minutes
    start = WHEN + timedelta(seconds=17)
    read_samples(asking(), "up", Window(start, start + timedelta(minutes=45)))
    assert [round(end % 60, 3) for end in ends[:-1]] == [0] * (len(ends) - 1)
    assert len(ends) > 4


def test_a_passing_failure_passes_with_growing_waits(
    asking: Asking, server: Misbehaving, slept: list[float]
) -> None:
    server.answers = [Answer(500, b""), Answer(502, HTML), Answer(200, VECTOR[:9]), Answer()]
    assert asking(retries=3).query("up", WHEN) == VECTOR
    assert len(slept) == 3
    assert all(low <= s <= low + 0.5 for s, low in zip(slept, (0.5, 1.0, 2.0), strict=True))


def test_a_server_that_says_when_to_come_back_is_obeyed(
    asking: Asking, server: Misbehaving, slept: list[float]
) -> None:
    later = [Answer(429, b"", {"Retry-After": s}) for s in ("17", "9999", "Fri, 20 Nov 2026")]
    server.answers = [*later, Answer()]
    assert asking(retries=3).query("up", WHEN) == VECTOR
    assert slept[:2] == [17.0, 120.0]
    assert slept[2] < 3


def test_warnings_about_the_query_are_no_missing_data(asking: Asking, server: Misbehaving) -> None:
    body = VECTOR[:-1] + b',"warnings":["PromQL warning: metric might not be a counter"]}\n'
    server.answers = [Answer(200, body)]
    assert asking().query("up", WHEN) == body


NO_STORE = VECTOR[:-1] + b',"warnings":["No StoreAPIs matched for this query"]}'


@pytest.mark.parametrize(("now", "is_whole"), [(VECTOR, True), (NO_STORE, False)])
def test_a_range_before_every_store_is_empty_and_no_store_is_an_outage(
    asking: Asking, server: Misbehaving, now: bytes, is_whole: bool
) -> None:
    server.answers = [Answer(200, NO_STORE), Answer(200, now)]
    client = asking(retries=0)
    if is_whole:
        assert client.query("up", WHEN) == NO_STORE
    else:
        with pytest.raises(TemporaryError, match="partial: No StoreAPIs"):
            client.query("up", WHEN)
    assert [parameters["query"] for _, parameters in server.asked] == ["up", "absent(up)"]


def test_every_try_counts_against_the_budget(asking: Asking, server: Misbehaving) -> None:
    server.answers = [Answer(503, b""), Answer()]
    client = asking(query_budget=3)
    client.query("up", WHEN)
    client.query("up", WHEN)
    with pytest.raises(BudgetSpentError, match="budget of 3 queries") as caught:
        client.query("up", WHEN)
    assert caught.value.exit_code == 75
    assert len(server.asked) == 3


def test_credentials_and_headers_travel(asking: Asking, server: Misbehaving) -> None:
    asking(bearer_token="t0ken", headers={"X-Scope-OrgID": "team"}).query("up", WHEN)
    asking(username="u", password="p").query("up", WHEN)
    assert server.headers[0]["Authorization"] == "Bearer t0ken"
    assert server.headers[0]["X-Scope-OrgID"] == "team"
    assert server.headers[1]["Authorization"] == "Basic dTpw"


def test_no_secret_is_in_an_error(asking: Asking, server: Misbehaving) -> None:
    server.answers = [Answer(401, b"t0ken refused")]
    with pytest.raises(AuthError) as caught:
        asking(bearer_token="t0ken").query("up", WHEN)
    assert "t0ken" not in str(caught.value)


@pytest.mark.parametrize("url", ["prometheus:9090", "ftp://host", "http://", "  ", "file:///etc"])
def test_what_is_no_address_is_a_usage_error(url: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        PrometheusClient(PrometheusSettings(url=url))


@pytest.mark.parametrize("path", ["", "/", "/api/v1", "/api/v1/"])
def test_the_base_url_may_end_in_its_api_path(server: Misbehaving, path: str) -> None:
    client = PrometheusClient(PrometheusSettings(url=server.url + path))
    client.query("up", WHEN)
    assert server.asked[0][0] == "/api/v1/query"
    client.close()


def test_a_dead_address_is_reported_at_once_in_plain_words(slept: list[float]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    reasons = {
        f"http://127.0.0.1:{port}": f"127.0.0.1:{port} refuses connections: nothing listens there",
        "http://prometheus.invalid:9090": "the name prometheus.invalid is not known",
    }
    for url, reason in reasons.items():
        client = PrometheusClient(PrometheusSettings(url=url), sleep=slept.append)
        with pytest.raises(TemporaryError) as error:
            client.query("up", WHEN)
        assert error.value.message == f"{url} cannot be reached: {reason}"
        client.close()
    assert slept == [], "the next collection tries again"


def test_a_missing_ca_file_is_an_error_of_the_settings() -> None:
    settings = PrometheusSettings(url="https://127.0.0.1:9090", ca_file="/nowhere/ca.pem")
    with pytest.raises(UsageError, match=r"ca_file /nowhere/ca.pem: there is no such file"):
        PrometheusClient(settings)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a self-signed certificate of 127.0.0.1 with its key beside it."""
    openssl = shutil.which("openssl") or pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("tls")
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "cert.pem"


@pytest.fixture
def secured(certificate: Path) -> Iterator[str]:
    """Serve one empty vector after another over TLS that nobody vouches for."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(VECTOR)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    class Quiet(HTTPServer):
        def handle_error(self, *_args: Any) -> None:
            """Say nothing of refused handshakes."""

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    with Quiet(("127.0.0.1", 0), Handler) as listening:
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
        threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True).start()
        yield f"https://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_a_certificate_nobody_vouches_for_is_refused_until_it_is_named(
    secured: str, certificate: Path
) -> None:
    client = PrometheusClient(PrometheusSettings(url=secured))
    with pytest.raises(SourceError, match="TLS failed") as caught:
        client.query("up", WHEN)
    assert "prometheus.ca_file" in str(caught.value.hint)
    assert client.queries == 1
    client.close()
    known = PrometheusClient(PrometheusSettings(url=secured, ca_file=str(certificate)))
    assert known.query("up", WHEN) == VECTOR
    known.close()


def test_tls_to_a_plain_server_fails_in_words(server: Misbehaving) -> None:
    client = PrometheusClient(PrometheusSettings(url=server.url.replace("http:", "https:")))
    with pytest.raises(SourceError, match="TLS failed"):
        client.query("up", WHEN)
    client.close()


@pytest.mark.parametrize("command", ["scan", "import"])
def test_a_prometheus_without_gpus_says_what_to_do(
    server: Misbehaving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    server.answering = lambda path, _: Answer(200, NAMES if path.endswith("values") else VECTOR)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    words = {"scan": ["scan", "--prometheus"], "import": ["import", "prometheus", "--url"]}
    assert run([*words[command], server.url]) == 1
    answer = capsys.readouterr()
    assert answer.out == ""
    assert "has no GPU series between" in answer.err
    assert "fallow doctor" in answer.err


@pytest.mark.parametrize("command", ["scan", "import"])
def test_a_prometheus_that_knows_the_names_and_answers_with_nothing_fails_each_time(
    server: Misbehaving,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    names = NAMES.replace(b'"up"', b'"up","DCGM_FI_DEV_GPU_UTIL","kube_pod_info"')
    matrix = VECTOR.replace(b"vector", b"matrix")

    def respond(path: str, parameters: Mapping[str, str]) -> Answer:
        if path.endswith("values"):
            return Answer(200, names)
        is_range = path.endswith("query_range") or parameters.get("query", "").endswith("]")
        return Answer(200, matrix if is_range else VECTOR)

    server.answering = respond
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FALLOW_HOME", str(tmp_path / "home"))
    words = {"scan": ["scan", "--prometheus"], "import": ["import", "prometheus", "--url"]}
    for _ in range(2):
        assert run([*words[command], server.url, "--since", "6h"]) == 1
        answer = capsys.readouterr()
        assert answer.out == ""
        assert f"{server.url} has no GPU telemetry in" in answer.err
        assert f"fallow doctor --prometheus {server.url}" in answer.err
