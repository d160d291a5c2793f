"""What people ask from a page reaches the actor in their name, or is refused in one line."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from dashboards import api_client
from dashboards.signin import Person
from fallow.demo_marker import MARKER
from fallow.errors import FallowError, RefusedError, TemporaryError, UsageError
from fallow.settings import Settings, load
from runtime.service.api import WriteApi
from runtime.service.endpoint import Endpoint
from runtime.service.metrics import SelfMetrics

TOKEN = "t" * 32
UNTIL = datetime(2026, 11, 20, tzinfo=UTC)
APPROVER, OPERATOR, VIEWER = (
    Person("ann@example", "approver"), Person("ben", "operator"), Person("eve", "viewer"),
)  # fmt: skip
OWNER = Person("mia", "viewer", groups=("vision",))
Said = list[tuple[str, ...]]


class Heard:
    """What the actor would do: it remembers who asked for what, and refuses one thing."""

    def __init__(self) -> None:
        self.said: Said = []

    def approve(self, request: str, by: str, subject: str = "") -> dict[str, Any]:
        """Agree, but not twice."""
        if request == "twice":
            raise RefusedError("d1 was approved by ann already", hint="four eyes")
        self.said.append(("approve", request, by, *filter(None, [subject])))
        return {"request": request}

    def snooze(self, finding: str, length: timedelta, by: str) -> dict[str, Any]:
        """Leave a finding alone."""
        self.said.append(("snooze", finding, str(length), by))
        return {"finding": finding, "until": UNTIL}

    def keep(self, workload: str, length: timedelta, by: str) -> dict[str, Any]:
        """Keep a workload."""
        self.said.append(("keep", workload, str(length), by))
        return {"workload": workload, "until": UNTIL}

    def undo(self, action: str, by: str) -> dict[str, Any]:
        """Undo, but not while another is acting."""
        if action == "busy":
            raise TemporaryError("another process is acting", hint="try again")
        self.said.append(("undo", action, by))
        return {"action": action, "result": "undone"}

    def resume(self, action: str, by: str) -> dict[str, Any]:
        """Note a request to resume."""
        self.said.append(("resume", action, by))
        return {"action": action, "result": "it waits for room", "at": UNTIL, "requested_by": by}


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def service(heard: Heard) -> Iterator[Settings]:
    """Return settings whose service answers as the real one does."""
    api = WriteApi(TOKEN, loopback=False)
    with Endpoint("127.0.0.1:0", SelfMetrics(), api=api) as endpoint:
        api.people = heard  # type: ignore[assignment]  # it says what People says
        yield told(url=endpoint.url, token=TOKEN)


def told(**service: str) -> Settings:
    return load(environ={}, flags={f"service.{k}": v for k, v in service.items()}).settings


def test_each_wish_is_asked_in_the_persons_name(service: Settings, heard: Heard) -> None:
    api_client.send_request(service, APPROVER, "approve", request="d1")
    answer = api_client.send_request(service, OPERATOR, "snooze", finding="f1", **{"for": "7d"})
    assert answer["until"].startswith("2026-11-20T00:00")
    api_client.send_request(service, OPERATOR, "keep", workload="Job/a/b", **{"for": "24h"})
    assert api_client.send_request(service, APPROVER, "undo", action="a1")["result"] == "undone"
    assert heard.said == [
        ("approve", "d1", "ann@example"),
        ("snooze", "f1", "7 days, 0:00:00", "ben"),
        ("keep", "Job/a/b", "1 day, 0:00:00", "ben"),
        ("undo", "a1", "ann@example"),
    ]


def test_an_approval_carries_the_subject_of_the_sign_in(service: Settings, heard: Heard) -> None:
    ann = Person("ann@example", "approver", subject="https://id.example 1")
    api_client.send_request(service, ann, "approve", request="d1")
    api_client.send_request(service, ann, "undo", action="a1")
    assert heard.said == [
        ("approve", "d1", "ann@example", "https://id.example 1"),
        ("undo", "a1", "ann@example"),
    ]


@pytest.mark.parametrize(
    ("person", "what", "owner", "allowed"),
    [
        (VIEWER, "approve", None, False),
        (VIEWER, "snooze", "vision", False),
        (VIEWER, "keep", "vision", False),
        (VIEWER, "undo", "vision", False),
        (OPERATOR, "snooze", None, True),
        (OPERATOR, "keep", "vision", True),
        (OPERATOR, "approve", None, False),
        (OPERATOR, "undo", "vision", False),
        (OPERATOR, "resume", "vision", False),
        (VIEWER, "resume", "vision", False),
        (APPROVER, "resume", "vision", True),
        (OWNER, "resume", "vision", True),
        (OWNER, "resume", "genai", False),
        (APPROVER, "approve", None, True),
        (APPROVER, "undo", "vision", True),
        (OWNER, "keep", "vision", True),
        (OWNER, "undo", "vision", True),
        (OWNER, "keep", "genai", False),
        (OWNER, "keep", None, False),
        (OWNER, "snooze", "vision", False),
        (OWNER, "approve", "vision", False),
    ],
)
def test_roles_and_owners_may_what_is_theirs(  # noqa: PLR0917
    person: Person,
    what: api_client.RequestKind,
    owner: str | None,
    allowed: bool,
    service: Settings,
    heard: Heard,
) -> None:
    body = {"approve": "request", "snooze": "finding", "keep": "workload", "undo": "action",
            "resume": "action"}  # fmt: skip
    assert api_client.may(person, what, owner) is allowed
    if allowed:
        api_client.send_request(service, person, what, owner=owner, **{body[what]: "x"})
        assert heard.said[0][-1] == person.name
        return
    with pytest.raises(RefusedError, match="takes the role") as refused:
        api_client.send_request(service, person, what, owner=owner, **{body[what]: "x"})
    assert person.name in refused.value.message
    assert not heard.said


@pytest.mark.parametrize(
    ("what", "body", "kind", "says"),
    [
        ("approve", {"request": "twice"}, RefusedError, "approved by ann already"),
        ("undo", {"action": "busy"}, TemporaryError, "another process is acting"),
        ("snooze", {"finding": "f", "for": "soon"}, UsageError, "not a duration"),
        ("keep", {"workload": ""}, UsageError, "length >= 1"),
        ("keep", {"nonsense": "1"}, UsageError, "nonsense"),
    ],
)
def test_what_the_service_says_is_what_people_read(
    what: api_client.RequestKind,
    body: dict[str, str],
    kind: type[FallowError],
    says: str,
    service: Settings,
) -> None:
    with pytest.raises(kind, match=says):
        api_client.send_request(service, APPROVER, what, **body)


def test_token_that_is_another_is_said(service: Settings, heard: Heard) -> None:
    for token in ("", "x" * 32):
        other = told(url=service.service.url, token=token)
        with pytest.raises(RefusedError, match="does not take this dashboard's word") as refused:
            api_client.send_request(other, APPROVER, "approve", request="d1")
        assert "service.token" in (refused.value.hint or "")
        assert TOKEN not in str(refused.value)
    assert not heard.said


@pytest.mark.parametrize(
    ("what", "body", "command"),
    [
        ("approve", {"request": "d1"}, "fallow approve d1"),
        ("undo", {"action": "a1"}, "fallow undo a1"),
        ("resume", {"action": "a1"}, "fallow resume a1"),
        ("keep", {"workload": "Notebook/a/b", "for": "7d"}, "fallow keep Notebook/a/b 7d"),
        ("snooze", {"finding": "f1", "for": "7d"}, None),
    ],
)
def test_service_that_is_down_is_said_with_the_command_that_does_the_same(
    what: api_client.RequestKind, body: dict[str, str], command: str | None, tmp_path: Path
) -> None:
    settings = told(url="http://127.0.0.1:9")
    with pytest.raises(TemporaryError, match="does not answer") as error:
        api_client.send_request(settings, APPROVER, what, **body)
    hint = error.value.hint or ""
    assert "fallow up" in hint
    assert hint.endswith(f"`{command}` does the same" if command else "it")
    (tmp_path / MARKER).touch()
    of_demo = settings.model_copy(update={"home": tmp_path})
    with pytest.raises(TemporaryError) as error:
        api_client.send_request(of_demo, APPROVER, what, **body)
    assert (f"--home {tmp_path}`" in (error.value.hint or "")) is bool(command)


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://h", "nowhere", "http://", "http://h:x"]
)
def test_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="is no address"):
        api_client.send_request(told(url=url), APPROVER, "approve", request="d1")


@pytest.mark.parametrize(
    ("listen", "url"),
    [
        ("127.0.0.1:9410", "http://127.0.0.1:9410"),
        ("0.0.0.0:1", "http://127.0.0.1:1"),
        ("[::]:2", "http://[::1]:2"),
    ],
)
def test_service_is_found_where_it_listens(listen: str, url: str) -> None:
    assert api_client.address(told(listen=listen)) == url


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (b"", TemporaryError, "broke off"),
        (b"HTTP/1.0 302 Found\r\nLocation: http://evil.example/\r\n\r\n", FallowError, "302"),
        (b"HTTP/1.0 404 no\r\n\r\nnot here: ask the actor\n", UsageError, "no actor answers at"),
        (b"HTTP/1.0 500 no\r\n\r\n<html>a proxy</html>", FallowError, "a proxy"),
        (b"HTTP/1.0 200 ok\r\n\r\n[1]", FallowError, "1"),
    ],
)
def test_answers_of_strangers_are_one_line(
    answer: bytes, kind: type[FallowError], says: str
) -> None:
    with strange(answer) as url, pytest.raises(kind, match=says) as error:
        api_client.send_request(told(url=url), APPROVER, "approve", request="d1")
    assert "\n" not in error.value.message


class strange:  # noqa: N801  (reads as a sentence)
    """A server that says these bytes to whoever posts."""

    def __init__(self, answer: bytes) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.wfile.write(answer)

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> str:
        self._thread.start()
        return "http://{}:{}".format(*self._server.server_address[:2])

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
