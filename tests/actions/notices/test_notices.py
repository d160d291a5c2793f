"""Notices reach a real webhook and a real mail server, in one digest, outside quiet hours."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.decide import decide
from actions.loop.protocols import Notice
from actions.notices.channels import ChannelNotifier
from actions.notices.notice_text import build_notice
from actions.policy.model import Policy, RecurringWindow
from fallow.action_models import CaseHistory
from fallow.errors import SettingsError, UsageError
from fallow.quiet_hours import parse_quiet_hours
from fallow.settings import load
from fallow.settings.actions import Channel, NoticesSettings
from tests.actions import cases
from tests.actions.notices.conftest import Hook

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)  # a Friday


def settings(hook: Hook, quiet: list[str] | None = None, **more: Any) -> NoticesSettings:
    channel = Channel.model_validate({"url": hook.url, "quiet": quiet or []})
    fields = {"channels": {"hook": channel}, "default": ["hook"], "operators": ["hook"], **more}
    return NoticesSettings.model_validate(fields)


def some(count: int = 1, **more: Any) -> list[Notice]:
    return [Notice(f"f-{n}", "idle", f"Notebook/team-a/nb-{n}: idle", **more) for n in range(count)]


def test_a_notice_reaches_a_webhook_and_is_proved(hook: Hook) -> None:
    (proof,) = ChannelNotifier(settings(hook)).tell(some(), NOW)
    assert proof.delivered == ("hook",)
    assert hook.got[0]["title"] == "Fallow: Notebook/team-a/nb-0: idle"
    assert "nb-0" in hook.got[0]["message"]


def test_a_notice_reaches_a_mailbox(hook: Hook, mail: tuple[str, list[str]]) -> None:
    url, got = mail
    channels = {"mail": {"url": url}}
    found = NoticesSettings.model_validate({"channels": channels, "default": ["mail"]})
    (proof,) = ChannelNotifier(found).tell(some(), NOW)
    assert proof.delivered == ("mail",), proof
    assert "ann@x.test" in got[0]
    del hook


@pytest.mark.parametrize("code", [401, 404, 429, 500, 503])
def test_what_is_not_taken_is_not_proved(hook: Hook, code: int) -> None:
    hook.code = code
    (proof,) = ChannelNotifier(settings(hook)).tell(some(), NOW)
    assert not proof.delivered
    assert proof.failed == (f"hook: the service answered {code}",)


def test_an_unreachable_channel_is_not_proved(hook: Hook) -> None:
    found = settings(hook)
    hook.close()
    (proof,) = ChannelNotifier(found).tell(some(), NOW)
    assert not proof.delivered
    assert proof.failed


def test_many_cases_are_one_digest_and_the_next_waits(hook: Hook) -> None:
    channels = ChannelNotifier(settings(hook, most_lines=20))
    proofs = channels.tell(some(25), NOW)
    assert len(hook.got) == 1
    assert hook.got[0]["title"] == "Fallow: 20 findings to check"
    assert [bool(p.delivered) for p in proofs] == [True] * 20 + [False] * 5
    assert proofs[-1].waits_until == NOW + timedelta(minutes=15)
    (late,) = channels.tell(some(1), NOW + timedelta(minutes=14))
    assert (late.delivered, len(hook.got)) == ((), 1)
    (late,) = channels.tell(some(1), NOW + timedelta(minutes=15))
    assert (late.delivered, len(hook.got)) == (("hook",), 2)


def test_a_digest_that_failed_may_be_tried_again_at_once(hook: Hook) -> None:
    channels = ChannelNotifier(settings(hook))
    hook.code = 500
    channels.tell(some(), NOW)
    hook.code = 200
    (proof,) = channels.tell(some(), NOW + timedelta(minutes=1))
    assert proof.delivered


def test_owners_are_not_told_in_quiet_hours_and_operators_are(hook: Hook) -> None:
    channels = ChannelNotifier(settings(hook, quiet=["11:00-14:00 UTC"]))
    owner, operator = channels.tell([*some(), *some(operators=True)], NOW)
    assert owner.waits_until == NOW + timedelta(hours=2)
    assert operator.delivered == ("hook",)
    assert len(hook.got) == 1


def test_a_team_has_its_own_channel_and_a_label_names_one(hook: Hook) -> None:
    other = Hook()
    found = settings(
        hook,
        channels={"hook": {"url": hook.url}, "ml": {"url": other.url}},
        owners={"team-a": ["ml"]},
    )
    channels = ChannelNotifier(found)
    channels.tell(some(owner="team-a"), NOW)
    assert (len(hook.got), len(other.got)) == (0, 1)
    channels.tell(some(owner="team-a", channels=("hook",)), NOW)
    assert (len(hook.got), len(other.got)) == (1, 1)
    other.close()


def test_a_label_cannot_make_fallow_call_a_stranger(hook: Hook) -> None:
    (proof,) = ChannelNotifier(settings(hook)).tell(some(channels=("json://evil.test/x",)), NOW)
    assert not proof.delivered
    assert proof.failed == ("no channel 'json://evil.test/x' (legal: hook)",)
    assert not hook.got


def test_nobody_to_tell_is_no_proof() -> None:
    (proof,) = ChannelNotifier(NoticesSettings()).tell(some(), NOW)
    assert proof.failed == ("no recipient: set notices.default",)


def test_a_notice_says_what_why_when_and_both_ways_out() -> None:
    facts = cases.facts(usd_per_day=Decimal("96.00"))
    decision = decide(cases.POLICY, facts, cases.SPENT, cases.NOW)
    made = build_notice(decision, facts, cases.POLICY, "https://fallow.test/case/{finding}")
    assert "Notebook/team-a/w: 2 GPUs idle since 2026-11-18 12:00 UTC, $96.00 a day." in made.text
    assert "1d from now, by policy idle-notebooks" in made.text
    assert "Keep it: fallow keep Notebook/team-a/w 24h" in made.text
    assert made.text.endswith(f"https://fallow.test/case/{facts.finding.id}")
    named = msgspec.structs.replace(facts, namespace_labels={"fallow.dev/channel": "ml, ops"})
    assert build_notice(decision, named, cases.POLICY).channels == ("ml", "ops")


def test_a_notice_of_what_the_ladder_does_not_do_announces_nothing() -> None:
    facts = cases.facts(recommendation=cases.advice("notify owner"), history=CaseHistory())
    decision = decide(cases.POLICY, facts, cases.SPENT, cases.NOW)
    text = build_notice(decision, facts, cases.POLICY).text
    assert "What happens: nothing by itself; please check it." in text
    assert "What is lost" not in text


def test_the_password_of_a_channel_is_never_printed(hook: Hook) -> None:
    secret = "json://user:hunter2@127.0.0.1:1/hook"
    found = NoticesSettings.model_validate({"channels": {"a": {"url": secret}}, "default": ["a"]})
    (proof,) = ChannelNotifier(found).tell(some(), NOW)
    assert "hunter2" not in f"{proof}{found}{found.model_dump_json()}"
    del hook


@pytest.mark.parametrize(
    ("text", "now", "until"),
    [
        ("22:00-07:00 UTC", "2026-11-20T23:00", "2026-11-21T07:00"),
        ("22:00-07:00 UTC", "2026-11-20T06:59", "2026-11-20T07:00"),
        ("22:00-07:00 UTC", "2026-11-20T07:00", None),
        ("22:00-07:00 Europe/Berlin", "2026-11-20T21:30", "2026-11-21T06:00"),
        ("sat-sun UTC", "2026-11-20T23:59", None),
        ("sat-sun UTC", "2026-11-21T00:00", "2026-11-23T00:00"),
        ("fri 12:00-13:00 UTC", "2026-11-20T12:30", "2026-11-20T13:00"),
        ("fri 22:00-07:00 UTC", "2026-11-21T03:00", "2026-11-21T07:00"),
        ("sat 22:00-07:00 UTC", "2026-11-21T03:00", None),
        # The clocks go back on 25 October 2026 at 03:00: the night has an hour more.
        ("22:00-07:00 Europe/Berlin", "2026-10-24T20:30", "2026-10-25T06:00"),
        ("sun-mon UTC", "2026-11-23T10:00", "2026-11-24T00:00"),
    ],
)
def test_quiet_hours(text: str, now: str, until: str | None) -> None:
    found = parse_quiet_hours(text).until(datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert found == (datetime.fromisoformat(until).replace(tzinfo=UTC) if until else None)


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.sampled_from(
        ["22:00-07:00 Europe/Berlin", "sat-sun UTC", "mon-fri 09:00-17:00 Asia/Kolkata"]
    ),
)
def test_quiet_ends_and_then_it_is_not_quiet(now: datetime, text: str) -> None:
    end = parse_quiet_hours(text).until(now)
    if end is not None:
        assert now < end <= now + timedelta(days=3)
        assert parse_quiet_hours(text).until(end) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("whenever", "write days, hours or both"),
        ("22:00-07:00", "write days"),
        ("22:00-07:00 Mars/Olympus", "no time zone"),
        ("25:00-07:00 UTC", "00:00 to 23:59"),
        ("sut-sun UTC", "days are mon"),
    ],
)
def test_what_are_no_quiet_hours_is_said(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_quiet_hours(text)


def test_settings_name_channels_that_there_are_none_of() -> None:
    with pytest.raises(SettingsError, match="no channel slack"):
        load(environ={"FALLOW_NOTICES__DEFAULT": '["slack"]'})
    with pytest.raises(SettingsError, match="no quiet hours"):
        load(
            environ={"FALLOW_NOTICES__CHANNELS": '{"a": {"url": "json://x/y", "quiet": ["never"]}}'}
        )


def told_of(policy: Policy, now: datetime) -> list[str]:
    """Return the lines of the notice about a notebook that nobody was told of yet."""
    seen = cases.facts(at=now, seen_until=now, history=CaseHistory())
    decision = decide(policy, seen, cases.spent(), now)
    assert decision.step == "notify"
    return build_notice(decision, seen, policy).text.splitlines()


@pytest.mark.parametrize(
    ("hour", "when"),
    [
        # Four hours of grace, then the window of 20:00 to 05:00 in Berlin (UTC+1 in November).
        (12, "Friday 2026-11-20 at 20:00"),
        (15, "Friday 2026-11-20 at 20:00"),
        (16, "Friday 2026-11-20 at 21:00"),
        (0, "Saturday 2026-11-21 at 20:00"),
    ],
)
def test_a_notice_announces_the_moment_of_a_stop_in_a_window(hour: int, when: str) -> None:
    window = RecurringWindow("0 20 * * *", timedelta(hours=9), "Europe/Berlin")
    stages = tuple(
        msgspec.structs.replace(stage, wait=timedelta(hours=4)) if stage.step == "grace" else stage
        for stage in cases.policy().stages
    )
    night = cases.policy(act_window=window, stages=stages)
    now = NOW.replace(hour=hour) + timedelta(days=hour == 0)
    lines = told_of(night, now)
    assert lines[2] == (
        f"What happens: announced stop on {when} Europe/Berlin unless it is at work by then, by "
        "policy idle-notebooks; it can be undone with one command."
    )
    assert lines[-1] == "Keep it: fallow keep Notebook/team-a/w 24h"
