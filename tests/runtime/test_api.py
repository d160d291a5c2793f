"""What people ask over HTTP is done in their name, or refused in one line before anything is."""

import json
import sqlite3
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from actions.journal import JournalState, event_types
from fallow.settings import Settings, load
from runtime.operations.acting.requests import ActionRequests, verify_journal
from runtime.operations.analysis import findings
from runtime.service.api import MOST_BYTES, WriteApi
from runtime.service.endpoint import Endpoint, is_loopback
from runtime.service.metrics import SelfMetrics
from tests.actions.loop.site import SPACE, Site, bare
from tests.cli.test_acting import done, stop_job
from tests.cli.test_acting import site as site  # noqa: PLC0414  (a fixture)
from warehouse.lake import Warehouse

JSON = {"Content-Type": "application/json"}
Said = tuple[int, dict[str, Any]]


class Asking:
    """A service's endpoint over a site, and a client of it."""

    def __init__(
        self, endpoint: Endpoint, settings: Settings, lake: Warehouse, api: WriteApi
    ) -> None:
        self.url = f"http://{endpoint.address}"
        self.settings, self.lake, self.api = settings, lake, api

    def post(self, path: str, body: object, **headers: str) -> Said:
        output = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {**JSON, **{k.replace("_", "-"): v for k, v in headers.items()}}
        wanted = urllib.request.Request(self.url + path, output, named)
        try:
            with urllib.request.urlopen(wanted) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                text = error.read().decode()
                return error.code, json.loads(text) if text.startswith("{") else {"error": text}


@pytest.fixture
def asking(site: Site) -> Iterator[Asking]:
    flags = {"home": site.folder, "cluster": "c", "actions.actor": "service"}
    settings = load(environ={}, flags=flags).settings
    metrics = SelfMetrics()
    api = WriteApi("", loopback=True, on_request=metrics.record_request)
    with (
        Warehouse.open(settings, write=True) as lake,
        Endpoint("127.0.0.1:0", metrics, api=api) as endpoint,
    ):
        api.people = ActionRequests(settings, lake, lambda: datetime.now(UTC))
        yield Asking(endpoint, settings, lake, api)


def asked_for(site: Site, by: str = "service") -> str:
    document = {
        "policy": "idle", "finding": "f1", "verb": "scale to zero",
        "subject": ("c", "Deployment", SPACE, "web"),
    }  # fmt: skip
    site.journal(actor=by).append(event_types.APPROVAL_REQUESTED, "d123", document)
    return "d123"


def test_an_approval_bears_the_name_of_who_gave_it(site: Site, asking: Asking) -> None:
    asked_for(site)
    code, answer = asking.post("/v1/approve", {"request": "d12", "by": "ann"})
    assert (code, answer) == (200, {"schema": "fallow.approve/v1", "by": "ann", "request": "d123"})
    (row,) = site.journal().entries(event_types.APPROVED)
    assert (row.key, row.actor) == ("d123", "ann")
    # Pages see it at once.
    seen = asking.lake.query("SELECT actor FROM action WHERE kind = 'approved'").to_pylist()
    assert seen == [{"actor": "ann"}]
    assert asking.post("/v1/approve", {"request": "d123", "by": "ann"})[0] == 409
    code, answer = asking.post("/v1/approve", {"request": "d123", "by": "service"})
    assert code == 409
    assert "somebody else has to approve" in answer["error"]
    found = verify_journal(asking.settings, asking.lake, lambda: datetime.now(UTC))
    assert found is not None
    assert (found[1], found[2]) == (None, 0)


def test_one_subject_approves_once_under_whatever_address(site: Site, asking: Asking) -> None:
    asked_for(site)
    body = {"request": "d123", "by": "ann@a", "oidc_subject": "https://id.example 1"}
    assert asking.post("/v1/approve", body)[0] == 200
    assert asking.post("/v1/approve", {**body, "by": "ann.new@a"})[0] == 409
    assert asking.post("/v1/approve", {**body, "oidc_subject": "x" * 1025})[0] == 400
    assert asking.post("/v1/approve", {**body, "oidc_subject": "https://id.example 2"})[0] == 200


def test_a_workload_is_kept_by_name(site: Site, asking: Asking) -> None:
    done(site)
    before = datetime.now(UTC)
    owner = f"Deployment/{SPACE}/web"
    code, answer = asking.post("/v1/keep", {"workload": owner, "for": "2h", "by": "ann"})
    assert code == 200, answer
    until = datetime.fromisoformat(answer["until"])
    assert timedelta(hours=2) <= until - before < timedelta(hours=2, minutes=5)
    result = site.get("Deployment", "web")["metadata"]["annotations"]
    assert any(value.startswith(f"{until:%Y-%m-%dT%H:%M}") for value in result.values())
    (row,) = site.journal().entries(event_types.KEEP)
    assert row.actor == "ann"


def test_an_undo_gives_back_what_an_action_took(site: Site, asking: Asking) -> None:
    result, before = done(site)
    code, answer = asking.post("/v1/undo", {"action": result.action.id[:8], "by": "ann"})
    assert (code, answer["action"], answer["result"]) == (200, result.action.id, "undone")
    assert bare(site.get("Deployment", "web")) == before
    assert site.journal().entries(event_types.UNDO_STARTED)[0].actor == "ann"
    assert asking.post("/v1/undo", {"action": result.action.id, "by": "ann"})[0] == 409


def test_a_resume_is_requested_once_and_pages_see_it(site: Site, asking: Asking) -> None:
    action = stop_job(site)
    code, answer = asking.post("/v1/resume", {"action": action[:8], "by": "mia"})
    assert (code, answer["action"], answer["requested_by"]) == (200, action, "mia"), answer
    assert answer["result"].startswith("it waits for room")
    code, again = asking.post("/v1/resume", {"action": action, "by": "ben"})
    assert (code, again["at"], again["requested_by"]) == (200, answer["at"], "mia")
    seen = asking.lake.query("SELECT actor FROM action WHERE kind = 'resume-requested'").to_pylist()
    assert seen == [{"actor": "mia"}]
    assert asking.post("/v1/undo", {"action": action, "by": "ann"})[0] == 200
    assert asking.post("/v1/resume", {"action": action, "by": "mia"})[0] == 409


def test_a_snoozed_finding_rests_and_so_does_its_case(site: Site, asking: Asking) -> None:
    finding = site.evidence._facts("Deployment", "web", datetime.now(UTC)).finding
    asking.lake.ingest([findings.build_rows([finding], found_at=finding.window.end)])
    assert asking.post("/v1/snooze", {"finding": "nothing", "by": "ann"})[0] == 400
    code, answer = asking.post("/v1/snooze", {"finding": finding.id[:3], "for": "3d", "by": "ann"})
    assert (code, answer["finding"]) == (200, finding.id)
    until = datetime.fromisoformat(answer["until"])
    history = JournalState(site.journal()).catch_up().history("idle", finding)
    assert history.kept_until == until


@pytest.mark.parametrize(
    ("path", "body", "code", "says"),
    [
        ("/v1/approve", {"request": "d", "by": ""}, 400, "length >= 1"),
        ("/v1/approve", {"request": "d"}, 400, "required field `by`"),
        ("/v1/approve", {"request": "d", "by": "a", "yes": 1}, 400, "unknown field `yes`"),
        ("/v1/approve", {"request": 5, "by": "a"}, 400, "Expected `str`"),
        ("/v1/approve", {"request": "d", "by": "a" * 254}, 400, "length <= 253"),
        ("/v1/approve", {"request": "d", "by": "a\nb"}, 400, "is no name"),
        ("/v1/approve", {"request": "d", "by": " a"}, 400, "is no name"),
        ("/v1/approve", {"request": "d", "by": "a"}, 400, "there is no journal"),
        ("/v1/approve", b"{", 400, "truncated"),
        ("/v1/approve", b"\xff", 400, "not what /v1/approve takes"),
        ("/v1/approve", [], 400, "Expected `object`"),
        ("/v1/undo", {"action": "x", "by": "a"}, 400, "there is no journal"),
        ("/v1/resume", {"action": "x", "by": "a"}, 400, "there is no journal"),
        ("/v1/resume", {"action": "", "by": "a"}, 400, "length >= 1"),
        ("/v1/resume", {"action": "x", "by": "a", "for": "1d"}, 400, "unknown field `for`"),
        ("/v1/keep", {"workload": "web", "by": "a"}, 400, "is no workload"),
        ("/v1/keep", {"workload": f"Deployment/{SPACE}/gone", "by": "a"}, 400, "there is no"),
        ("/v1/keep", {"workload": "a/b/c", "for": "soon", "by": "a"}, 400, "not a duration"),
        ("/v1/keep", {"workload": "a/b/c", "for": "0s", "by": "a"}, 400, "not a duration"),
        ("/v1/snooze", {"finding": "f", "for": "367d", "by": "a"}, 400, "too long"),
        ("/v1/thaw", {"by": "a"}, 404, "there is no '/v1/thaw'"),
        ("/v1/../metrics", {"by": "a"}, 404, "there is no"),
        ("/metrics", {"by": "a"}, 404, "there is no '/metrics'"),
        ("/v1/approve", b" " * (MOST_BYTES + 1), 413, "more than"),
    ],
)
def test_what_is_no_request_is_refused_and_nothing_is_written(
    asking: Asking, path: str, body: object, code: int, says: str
) -> None:
    got, answer = asking.post(path, body)
    assert (got, answer["error"].count("\n") <= 1) == (code, True), answer
    assert says in answer["error"]
    journal = asking.settings.home / "journal.sqlite"
    assert not journal.exists() or verify_journal(
        asking.settings, asking.lake, lambda: datetime.now(UTC)
    ) == (0, None, 0)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({"Content_Type": "text/plain"}, 415),  # what a form of a web page can send
        ({"Origin": "http://evil.example"}, 403),
        ({"Host": "evil.example"}, 403),  # a name that was bound anew to loopback
        ({"Host": "evil.example:80"}, 403),
        ({"Host": "localhost:9410"}, 400),
        ({"Host": "[::1]:9410"}, 400),
    ],
)
def test_a_page_of_elsewhere_cannot_write_through_a_browser(
    asking: Asking, headers: dict[str, str], code: int
) -> None:
    assert asking.post("/v1/approve", {"request": "d", "by": "a"}, **headers)[0] == code


@pytest.mark.parametrize(
    ("token", "local", "headers", "code"),
    [
        ("", False, {}, 403),
        ("s3cret", False, {}, 401),
        ("s3cret", True, {}, 401),
        ("s3cret", False, {"Authorization": "Bearer wrong"}, 401),
        ("s3cret", False, {"Authorization": "s3cret"}, 401),
        ("s3cret", False, {"Authorization": "Bearer größer"}, 401),
        ("s3cret", False, {"Authorization": "Bearer s3cret"}, 503),  # let in; it is starting
        ("", True, {"Host": "127.0.0.1:1"}, 503),
    ],
)
def test_without_the_token_only_loopback_may_write(
    token: str, local: bool, headers: dict[str, str], code: int
) -> None:
    api = WriteApi(token, loopback=local)
    body = b'{"request": "d", "by": "a"}'
    assert api.answer("/v1/approve", {**JSON, **headers}, body)[0] == code


@pytest.mark.parametrize(
    ("listen", "local"),
    [
        ("127.0.0.1:1", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("localhost:1", True),
        ("0.0.0.0:1", False), ("[::]:1", False), ("10.0.0.1:1", False), ("host.example:1", False),
    ],
)  # fmt: skip
def test_loopback_is_what_only_this_machine_reaches(listen: str, local: bool) -> None:
    assert is_loopback(listen) is local


def test_the_dashboard_is_told_where_this_machine_finds_it() -> None:
    with Endpoint("0.0.0.0:0", SelfMetrics()) as endpoint:
        port = endpoint.address.rpartition(":")[2]
        assert endpoint.url == f"http://127.0.0.1:{port}"
        assert urllib.request.urlopen(f"{endpoint.url}/healthz").read() == b"ok\n"


def test_a_process_without_the_journal_says_who_has_it() -> None:
    with Endpoint("127.0.0.1:0", SelfMetrics()) as endpoint:
        url = f"http://{endpoint.address}/v1/approve"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(url, b"{}", JSON))
        with caught.value as error:
            assert (error.code, b"role is actor" in error.read()) == (404, True)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(url)
        with caught.value as error:
            assert error.code == 405


def test_a_broken_chain_is_told(site: Site, asking: Asking) -> None:
    asked_for(site)
    connection = sqlite3.connect(asking.settings.home / "journal.sqlite", isolation_level=None)
    connection.execute("DROP TRIGGER entry_is_never_changed")
    connection.execute("UPDATE entry SET actor = 'mallory'")
    connection.close()
    found = verify_journal(asking.settings, asking.lake, lambda: datetime.now(UTC))
    assert found is not None
    assert found[1] is not None
    assert found[1].seq == 1
