"""Every delivery ends within its deadline against a peer that sends one byte a second."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from actions.nodes.eks import EksClient
from actions.notices.apprise_delivery import deliver_text, open_service
from actions.snapshots.store import BucketStore
from dashboards.api_client import send_request
from dashboards.signin import Person
from fallow.errors import TemporaryError
from fallow.settings import Settings, load
from fallow.settings.groups import S3
from fallow.settings.reports import ReportStore
from fallow.system import deadlines
from fallow.system.daemon_threads import DaemonThreads
from fallow.system.deadlines import DeadlineExceededError, TooManyHangingCallsError, call_within
from runtime.operations.accounting import prices
from runtime.operations.answers.reports import Report
from runtime.operations.doctor.channels import check_channels
from runtime.service.delivery import bucket, mail
from runtime.service.delivery.outbox import Delivery
from tests.servers.dripping import Dripping, dripping
from warehouse.cold_storage import ColdBucket

LIMIT_S = 0.6
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
REPORT = Report("fallow.csv", "text/csv", b"a,b\n1,2\n", "Idle GPUs", "two rows")
SMTP_GREETING = b"220-hello\r\n"
SMTP_LINE = b"220-and more\r\n"
"""A greeting of many lines that never ends: each line comes in time for a timeout per read."""


@pytest.fixture
def server() -> Iterator[Dripping]:
    with dripping(every_s=0.1) as running:
        yield running


def test_a_webhook_that_drips_may_have_taken_the_text(server: Dripping) -> None:
    service = open_service(f"json://{server.host}:{server.port}/")
    attempt = deliver_text(service, "title", "text", LIMIT_S)
    assert not attempt.is_accepted
    assert not attempt.sure
    assert f"no complete answer within {LIMIT_S:g} s" in attempt.message
    assert server.connections == 1


def test_a_mail_server_that_drips_its_greeting_took_nothing() -> None:
    with dripping(first=SMTP_GREETING, drop=SMTP_LINE, every_s=0.1) as server:
        url = f"mailto://{server.host}:{server.port}?from=a@example.com&to=b@example.com"
        attempt = mail.send_mail(open_service(url), REPORT, "text", "key", LIMIT_S)
    assert not attempt.is_accepted
    assert attempt.sure, "no message was sent"
    assert attempt.again


def test_the_doctor_ends_at_a_mail_server_that_drips() -> None:
    with dripping(first=SMTP_GREETING, drop=SMTP_LINE, every_s=0.1) as server:
        url = f"mailto://{server.host}:{server.port}?from=a@example.com&to=b@example.com"
        channels = {"team": {"url": url}}
        flags = {"notices.channels": channels, "notices.timeout": "1s"}
        (row,) = check_channels(load(environ={}, flags=flags).settings)
    assert row.status == "away"
    assert "does not answer as a mail server: no complete answer within 1 s" in row.finding


def test_a_snapshot_store_that_drips_is_away(
    server: Dripping, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CALL_S", "PART_S"):
        monkeypatch.setattr(f"actions.snapshots.store.{name}", LIMIT_S)
    account = S3(endpoint=server.url, region="us-east-1", access_key_id="a", secret_access_key="b")
    store = BucketStore("s3://snapshots/fallow", account)
    with pytest.raises(TemporaryError, match="no complete answer within"):
        store.write("pod/manifest")
    with pytest.raises(TemporaryError, match="no complete answer within"):
        next(store.blocks("pod/manifest"))


def test_an_archive_that_drips_is_away(server: Dripping, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("warehouse.cold_storage.ANSWER_S", LIMIT_S)
    account = S3(endpoint=server.url, region="us-east-1", access_key_id="a", secret_access_key="b")
    with pytest.raises(TemporaryError, match="does not answer within"):
        ColdBucket("s3://cold/fallow", account).check()


def test_node_groups_whose_answer_drips_are_away(
    server: Dripping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actions.nodes.eks.CALL_S", LIMIT_S)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "a")
    monkeypatch.setenv("AWS_ENDPOINT_URL_EKS", server.url)
    with pytest.raises(TemporaryError, match="no complete answer within"):
        EksClient().get("eks/us-east-1/prod/nodegroups/gpu")


def test_a_bucket_that_drips_is_tried_again(server: Dripping) -> None:
    s3 = S3(
        endpoint=server.url,
        region="us-east-1",
        access_key_id="a",
        secret_access_key="b",
    )
    store = ReportStore(url="s3://reports/fallow", s3=s3)
    delivery = Delivery("weekly", NOW, "store", "waiting", NOW, NOW, 0, NOW, "")
    attempt = bucket.put(store, "c", delivery, REPORT, LIMIT_S)
    assert not attempt.is_accepted
    assert attempt.again
    assert "no complete answer" in attempt.message


def test_aws_prices_that_drip_are_temporary(
    server: Dripping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prices, "MARKET_WITHIN_S", LIMIT_S)
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    flags = {"prices.aws_regions": ["us-east-1"]}
    with pytest.raises(TemporaryError, match="AWS prices: no complete answer"):
        prices.read_market_rates(load(environ={}, flags=flags).settings, NOW)


def request(url: str) -> Any:
    settings: Settings = load(environ={}, flags={"service.url": url}).settings
    person = Person(name="ada", role="operator")
    return send_request(settings, person, "keep", workload="Notebook/ml/a")


def test_a_request_of_a_page_to_a_service_that_drips_may_have_been_done(
    server: Dripping, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dashboards.api_client.PATIENCE_S", LIMIT_S)
    with pytest.raises(TemporaryError, match="broke off: no complete answer") as error:
        request(server.url)
    assert "it may have been done" in str(error.value.hint)


def test_a_request_of_a_page_that_reached_nobody_was_not_done() -> None:
    with pytest.raises(TemporaryError, match=r"does not answer: .* refuses connections") as error:
        request("http://127.0.0.1:9")
    assert "may have been done" not in str(error.value.hint)


def test_calls_that_hang_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "_calls", DaemonThreads("call-within", 1))
    hangs, begun = threading.Event(), []
    with pytest.raises(DeadlineExceededError):
        call_within(0.05, lambda: hangs.wait(60))
    with pytest.raises(TooManyHangingCallsError):
        call_within(60, lambda: begun.append(1))
    assert begun == []
    hangs.set()
    answers: list[int] = []
    for _ in range(600):  # its thread ends in between
        with suppress(TooManyHangingCallsError):
            answers.append(call_within(60, lambda: 7))
            break
        threading.Event().wait(0.1)
    assert answers == [7], "the place was given back"


def test_the_error_of_a_call_is_the_callers() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        call_within(60, fail)
