"""A Prometheus, a hub or an API server that answers oddly fails in words, within its bounds."""

import time
from collections.abc import Callable, Iterator

import msgspec
import pytest

from actions.cluster.jupyterhub import JupyterHubClient
from collectors.prometheus.client import PrometheusClient
from collectors.prometheus.decode import decode_labels, decode_matrix, decode_vector
from collectors.prometheus.remote_fields import AnswerError, read_varint
from fallow.action_models import Change, Target
from fallow.errors import FallowError, SourceError, TemporaryError
from fallow.kube.api import BackOff, connect_without_credentials
from fallow.kube.api_objects import Page
from fallow.kube.listing import Listing
from fallow.settings.actions import JupyterHubSettings
from fallow.settings.collectors import PrometheusSettings
from tests.servers.odd_answers import (
    OK,
    OddServer,
    Script,
    list_wire_oddities,
    repeat,
    say_body,
    serve_odd,
)

WITHIN_S = 0.2
SLACK_S = 15.0
DEEP = b'{"status":"success","x":' + b'{"x":' * 100_000
JSON_BODIES = {
    "JSON 100,000 deep": DEEP,
    "JSON 100,000 deep that ends": DEEP + b"1" + b"}" * 100_001,
    "partial, 100,000 deep": b'{"status":"success","warnings":["w"],"x":' + b"[" * 100_000 + b"}",
    "bad UTF-8": b'{"status":"\xff\xfe","data":"\xff"}',
    "NaN": b'{"status":NaN}',
    "a list": b"[]",
    "a text": b'"x"',
    "data of null": b'{"status":"success","data":null}',
    "a matrix as a text": b'{"status":"success","data":{"resultType":"matrix","result":"x"}}',
    "a label that is a list": (
        b'{"status":"success","data":{"resultType":"matrix","result":'
        b'[{"metric":{"a":[]},"values":[[1,"2"]]}]}}'
    ),
}


def query_prometheus(url: str) -> object:
    settings = PrometheusSettings.model_validate(
        {"url": url, "timeout": WITHIN_S, "retries": 0, "body_size_limit": 1 << 20,
         "headers": {"X-Scope-OrgID": "s3cret"}, "bearer_token": "s3cret"}
    )  # fmt: skip
    client = PrometheusClient(settings, sleep=lambda _s: None)
    matrix = decode_matrix(client.get("query", {"query": "up"}))
    return [decode_labels(text) for text in matrix.labels]


def read_hub(url: str) -> object:
    settings = {"url": url, "token": "s3cret", "timeout": WITHIN_S}
    return JupyterHubClient(JupyterHubSettings.model_validate(settings)).get("/hub/api/users/x")


def list_pods(url: str) -> object:
    api = connect_without_credentials(url, timeout_s=WITHIN_S, pause=BackOff(lambda _s: None))
    return list(Listing(api, "/api/v1/pods", msgspec.json.Decoder(Page[dict]), limit=1))  # type: ignore[type-arg]


CLIENTS: dict[str, Callable[[str], object]] = {
    "prometheus": query_prometheus,
    "hub": read_hub,
    "kubernetes": list_pods,
}


@pytest.fixture
def elsewhere() -> Iterator[OddServer]:
    with serve_odd(lambda _path: say_body(b"{}")) as server:
        yield server


def catch(read: Callable[[], object]) -> FallowError | None:
    """Return the error in words that a read ends with; no other error may end it."""
    try:
        read()
    except FallowError as error:
        return error
    return None


@pytest.mark.parametrize("client", CLIENTS)
def test_an_odd_answer_is_an_error_in_words(client: str, elsewhere: OddServer) -> None:
    bodies = {name: say_body(body) for name, body in JSON_BODIES.items()}
    odd: dict[str, Script] = {**list_wire_oddities(elsewhere.url), **bodies}
    for name, script in odd.items():
        began = time.monotonic()
        with serve_odd(lambda _path, s=script: s) as server:  # type: ignore[misc]
            error = catch(lambda: CLIENTS[client](server.url))
        if error is None:
            assert client != "prometheus", name
        else:
            assert len(str(error)) < 1500, name
            assert error.message.isprintable(), name
        assert time.monotonic() - began < SLACK_S, name
    assert not [request for request in elsewhere.requests if b"redirected" in request]


@pytest.mark.parametrize(
    "server",
    [b"[]", b'"x"', b'{"servers":[]}', b'{"servers":{"":[]}}', b'{"servers":{"":{"pending":{}}}}',
     b'{"servers":{"":{"ready":"no"}}}', b'{"servers":' + b'{"x":' * 100_000],
)  # fmt: skip
def test_a_hub_with_other_fields_stops_nothing(server: bytes) -> None:
    target = Target("c", "", "JupyterServer", "hub", "x", "uid")
    change = Change(
        target, "PATCH", "/hub/api/users/x/server", {"running": False},
        content_type="application/json", client="jupyterhub", read="/hub/api/users/x",
        was={}, becomes={}, guarded=False,
    )  # fmt: skip
    with serve_odd(lambda _path: say_body(server)) as hub:
        settings = {"url": hub.url, "token": "s3cret", "timeout": 10}
        client = JupyterHubClient(JupyterHubSettings.model_validate(settings))
        assert not client.send(change, dry_run=False).ok
        assert all(request.startswith(b"GET ") for request in hub.requests)


@pytest.mark.parametrize("value", ["9" * 5000, "inf", "nan", "-1", "1e308"])
def test_no_server_is_waited_for_without_end(value: str) -> None:
    waits: list[float] = []
    head = b"HTTP/1.1 503 Busy\r\nRetry-After: " + value.encode() + b"\r\n"
    with serve_odd(lambda _path: say_body(b"{}", status=head)) as server:
        api = connect_without_credentials(server.url, pause=BackOff(waits.append))
        with pytest.raises(FallowError):
            api.get("/api/v1/pods")
    assert waits
    assert max(waits) <= 120


def test_a_list_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fallow.kube.listing.MOST_PAGES", 5)
    page = b'{"metadata":{"resourceVersion":"1","continue":"more"},"items":[{}]}'
    with (
        serve_odd(lambda _path: say_body(page)) as server,
        pytest.raises(SourceError, match="a list without end"),
    ):
        list_pods(server.url)


def test_a_watch_of_a_byte_at_a_time_ends() -> None:
    with serve_odd(lambda _path: repeat(OK + b"\r\n", b"x", 0.02)) as server:
        api = connect_without_credentials(server.url, timeout_s=5)
        began = time.monotonic()
        stream = api.stream("/api/v1/pods", {}, read_timeout_s=0.5)
        with pytest.raises(TemporaryError, match="lasts longer"):
            list(stream)
        assert time.monotonic() - began < SLACK_S


def test_a_number_that_does_not_end_is_refused_at_once() -> None:
    with pytest.raises(AnswerError, match="does not end"):
        read_varint(b"\x80" * 1_000_000, 0)
    assert read_varint(b"\xff" * 9 + b"\x01", 0) == ((1 << 64) - 1, 10)


def test_a_vector_of_no_numbers_is_refused() -> None:
    body = b'{"data":{"result":[{"metric":{},"value":[1,"x"]}]}}'
    with pytest.raises(SourceError, match="no number"):
        decode_vector(body)
