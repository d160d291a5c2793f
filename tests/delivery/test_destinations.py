"""What each kind of destination gets, and what a refusal of it means."""

import email.policy
import logging
from email import message_from_bytes
from pathlib import Path
from typing import Any

import boto3  # noqa: TID253  (the test looks into the bucket itself)
import msgspec
import pytest

from fallow.settings import Settings
from fallow.settings.reports import ReportStore
from runtime.service.delivery import bucket, destinations
from runtime.service.delivery.outbox import Delivery
from tests.delivery.receivers import NOW, SECRET, Hook, Post, configured, free_port, report
from tests.servers import s3

KEYS = {"access_key_id": "test", "secret_access_key": "test"}


def delivery(to: str, name: str = "weekly") -> Delivery:
    return Delivery(name, NOW, to, "sending", NOW, NOW, 1, NOW, "")


def mailed(tmp_path: Path, post: Post, to: str = "cfo@corp.example") -> Settings:
    url = f"mailto://127.0.0.1:{post.port}/?from=fallow@corp.example&to={to}&mode=insecure"
    return configured(tmp_path, {"mail": url})


def test_a_mail_bears_the_summary_the_file_and_a_name_of_its_own(
    tmp_path: Path, post: Post
) -> None:
    settings = mailed(tmp_path, post, to="cfo@corp.example,finops@corp.example")
    one = delivery("mail")
    assert destinations.deliver_report(settings, one, report(), "s3://b/k").is_accepted
    assert post.recipients == [["cfo@corp.example", "finops@corp.example"]]
    mail: Any = message_from_bytes(post.is_accepted[0], policy=email.policy.default)
    assert mail["Message-ID"] == f"<{one.id}@corp.example>"
    assert mail["Subject"] == "What was paid"
    assert mail.get_body().get_content().startswith("1,234.50 was paid")
    assert "s3://b/k" in mail.get_body().get_content()
    (attached,) = mail.iter_attachments()
    assert attached.get_filename() == report().name
    assert attached.get_content_type() == "text/markdown"
    assert attached.get_payload(decode=True) == report().body


@pytest.mark.parametrize(
    ("says", "again", "words"),
    [
        ({"to_sender": "450 not now"}, True, "takes no mail from us: 450 not now"),
        ({"to_sender": "530 sign in first"}, False, "takes no mail from us: 530 sign in first"),
        ({"to_message": "452 disk full"}, True, "does not take it: 452 disk full"),
        ({"to_message": "552 too big"}, False, "does not take it: 552 too big"),
    ],
)
def test_a_mail_server_that_refuses_is_quoted_and_asked_again_only_where_it_says_so(
    tmp_path: Path, post: Post, says: dict[str, str], again: bool, words: str
) -> None:
    for name, value in says.items():
        setattr(post, name, value)
    handed = destinations.deliver_report(mailed(tmp_path, post), delivery("mail"), report(), "")
    assert (handed.is_accepted, handed.sure, handed.again) == (False, True, again)
    assert words in handed.message
    assert f"127.0.0.1:{post.port}" in handed.message


def test_a_mail_that_some_recipients_cannot_have_is_sent_to_the_others_once(
    tmp_path: Path, post: Post
) -> None:
    post.to_recipient["gone@corp.example"] = "550 no such mailbox"
    settings = mailed(tmp_path, post, to="gone@corp.example,cfo@corp.example")
    handed = destinations.deliver_report(settings, delivery("mail"), report(), "")
    assert handed.is_accepted
    assert handed.message == "1 of 2 recipients refused: 550 no such mailbox"
    assert post.recipients == [["cfo@corp.example"]]


@pytest.mark.parametrize("scheme", ["mailto", "json"])
def test_who_cannot_be_reached_has_nothing_and_is_asked_again(tmp_path: Path, scheme: str) -> None:
    where = f"127.0.0.1:{free_port()}/"
    urls = {
        "mailto": f"mailto://u:{SECRET}@{where}?from=f@corp.example&mode=insecure",
        "json": f"json://u:{SECRET}@{where}{SECRET}",
    }
    settings = configured(tmp_path, {"there": urls[scheme]})
    handed = destinations.deliver_report(settings, delivery("there"), report(), "")
    assert (handed.is_accepted, handed.sure, handed.again) == (False, True, True)
    assert SECRET not in handed.message


def test_a_mail_server_that_falls_silent_after_the_message_may_have_it(
    tmp_path: Path, post: Post, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(*_: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("smtplib.SMTP.data", silent)
    handed = destinations.deliver_report(mailed(tmp_path, post), delivery("mail"), report(), "")
    assert (handed.is_accepted, handed.sure) == (False, False)
    assert "may have arrived" in handed.message


@pytest.mark.parametrize(("code", "again"), [(200, False), (503, True), (404, False)])
def test_a_webhook_gets_the_file_and_a_key_that_tells_doubles(
    tmp_path: Path,
    hook: Hook,
    caplog: pytest.LogCaptureFixture,
    code: int,
    again: bool,
) -> None:
    hook.code = code
    settings = configured(tmp_path, {"hook": hook.url})
    one = delivery("hook")
    caplog.set_level(
        logging.INFO, logger="urllib3"
    )  # as runtime.cli.logs has it, even with --debug
    with caplog.at_level(logging.DEBUG):
        handed = destinations.deliver_report(settings, one, report(), "")
    assert (handed.is_accepted, handed.sure, handed.again) == (code == 200, True, again)
    assert hook.got[0]["title"] == "What was paid"
    assert hook.got[0]["attachments"][0]["filename"] == report().name
    assert hook.headers[0]["Idempotency-Key"] == one.id
    # pytest hears Apprise's log itself; nobody else does.
    assert not logging.getLogger("apprise").propagate
    heard = " ".join(r.getMessage() for r in caplog.records if r.name != "apprise")
    assert SECRET not in heard + handed.message


def test_a_webhook_that_hangs_up_before_it_answers_may_have_it(tmp_path: Path, hook: Hook) -> None:
    hook.code = 0
    settings = configured(tmp_path, {"hook": hook.url})
    handed = destinations.deliver_report(settings, delivery("hook"), report(), "")
    assert (handed.is_accepted, handed.sure) == (False, False)
    assert len(hook.got) == 1


def test_a_bucket_has_one_object_however_often_it_is_put_and_others_stay_as_they_are(
    tmp_path: Path,
) -> None:
    with s3.serving() as endpoint:
        s3.make_bucket(endpoint, "books")
        store = {"url": "s3://books/fallow", "s3": {"endpoint": endpoint, **KEYS}}
        settings = configured(tmp_path, {}, stores={"archive": store})
        client = boto3.client(
            "s3", endpoint_url=endpoint, region_name="us-east-1",
            aws_access_key_id="test", aws_secret_access_key="test",
        )  # fmt: skip
        anchored = msgspec.structs.replace(report(), summary="waste\n\nJournal: 7:0123456789abcdef")
        first, second = (
            destinations.deliver_report(settings, delivery("archive"), anchored, "")
            for _ in range(2)
        )
        key = "fallow/test/weekly/20261120T070000Z-fallow-finance-20261113-20261120.md"
        assert first.is_accepted
        assert second.is_accepted
        assert first.message == second.message == f"s3://books/{key}"
        found = client.get_object(Bucket="books", Key=key)
        assert found["Body"].read() == report().body
        assert found["ContentType"] == report().media_type
        assert found["Metadata"]["fallow-journal"] == "7:0123456789abcdef"

        other = delivery("archive", "monthly")
        _, taken_key = bucket.address(ReportStore(**store), "test", other, report())
        client.put_object(Bucket="books", Key=taken_key, Body=b"somebody else's")
        refused = destinations.deliver_report(settings, other, report(), "")
        assert (refused.is_accepted, refused.sure, refused.again) == (False, True, False)
        assert "not overwritten" in refused.message
        assert client.get_object(Bucket="books", Key=taken_key)["Body"].read() == b"somebody else's"

        nowhere = configured(tmp_path, {}, stores={"a": {**store, "url": "s3://no-such-bucket"}})
        absent = destinations.deliver_report(nowhere, delivery("a"), report(), "")
        assert (absent.is_accepted, absent.again) == (False, False)
        assert "NoSuchBucket" in absent.message


def test_a_bucket_that_cannot_be_reached_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    endpoint = f"http://127.0.0.1:{free_port()}"
    store = {"url": "s3://books", "s3": {"endpoint": endpoint, **KEYS}}
    settings = configured(tmp_path, {}, stores={"archive": store})
    handed = destinations.deliver_report(settings, delivery("archive"), report(), "")
    assert (handed.is_accepted, handed.again) == (False, True)
    assert endpoint in handed.message


def test_what_is_no_apprise_url_is_said_without_it(tmp_path: Path) -> None:
    settings = configured(tmp_path, {"x": f"nonsense://{SECRET}"})
    handed = destinations.deliver_report(settings, delivery("x"), report(), "")
    assert not handed.is_accepted
    assert handed.message == "its url is no Apprise URL"


def test_a_delivery_is_named_alike_in_every_process() -> None:
    assert delivery("mail").id == delivery("mail").id
    assert len({delivery("mail").id, delivery("hook").id, delivery("mail", "b").id}) == 3
