"""An owner's request to resume a stopped job once it has room: one row, or one clear refusal."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from actions.journal import JournalState, event_types
from actions.journal.trust import trust_by_hand
from actions.loop.resume_requests import describe_pending_resume, request_resume
from actions.policy.model import Allow, Policy, Stage
from fallow.action_models import PendingResume
from fallow.errors import FallowError, RefusedError, TemporaryError, UsageError
from tests.actions.loop.site import START, Site, journal_in

TWO_WEEKS = timedelta(days=14)


class JobSite(Site):
    """A site whose idle Job Fallow suspended."""

    def stop_job(self, **facts: Any) -> str:
        """Make an idle Job, let it be suspended and return the action's id."""
        self.evidence.changes.update(facts)
        self.job()
        return self.done(self.actor()).action.id

    def state(self) -> JournalState:
        return JournalState(self.journal()).catch_up()

    def request(self, action: str, by: str = "mia") -> tuple[str, PendingResume]:
        return request_resume(JournalState(self.journal(actor=by)), action, by, self.now)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[JobSite]:
    with JobSite(tmp_path) as made:
        yield made


def test_a_request_is_one_row_however_often_it_is_made(site: JobSite) -> None:
    action = site.stop_job()
    first = site.request(action[:6])
    site.pass_time(minutes=5)
    assert site.request(action, by="ben") == first
    assert (first[0], first[1].by) == (action, "mia")
    (row,) = site.journal().entries(event_types.RESUME_REQUESTED)
    assert (row.key, row.actor, row.at) == (action, "mia", first[1].at)
    assert site.get("Job", "train")["spec"]["suspend"] is True


def request_and_die(folder: Path, action: str) -> None:
    """Request a resume and die as the machine would, before anything else is written."""
    record = JournalState(journal_in(folder, lambda: START + timedelta(hours=3)))
    request_resume(record, action, "mia", START + timedelta(hours=3))
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_request_survives_the_death_of_its_process_and_a_checkpoint(site: JobSite) -> None:
    action = site.stop_job()
    process = multiprocessing.get_context("spawn").Process(
        target=request_and_die, args=(site.folder, action)
    )
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    state = site.state()
    request = state.actions[action].pending_resume
    assert request == PendingResume("mia", START + timedelta(hours=3))
    again = JournalState(site.journal())
    again.load(msgspec.Raw(state.dump()))
    assert again.actions[action].pending_resume == request


def test_an_undo_gives_it_back_at_once_and_withdraws_the_request(site: JobSite) -> None:
    action = site.stop_job()
    site.request(action)
    site.actor().undo(action, "mia")
    assert not site.get("Job", "train")["spec"].get("suspend")
    with pytest.raises(RefusedError, match="was undone already"):
        site.request(action)


def reverse(site: JobSite, action: str) -> None:
    site.journal().append(event_types.REVERSED, action, {"by": "kubectl", "person": True})


def begin_undo(site: JobSite, action: str) -> None:
    document = {"requested": True, "ends": "undone"}
    site.journal(actor="ann").append(event_types.UNDO_STARTED, action, document)


def fail_undo(site: JobSite, action: str) -> None:
    begin_undo(site, action)
    document = {"action": action, "result": "done", "at": site.now, "reasons": []}
    site.journal().append(event_types.OUTCOME, action, document)


def fail_stop(site: JobSite, action: str) -> None:
    document = {"action": action, "result": "failed", "at": site.now, "reasons": []}
    site.journal().append(event_types.OUTCOME, action, document)


def delete(site: JobSite, action: str) -> None:
    site.journal().append(event_types.OBJECT_GONE, action, {})


def pass_two_weeks(site: JobSite, action: str) -> None:
    site.now = site.state().actions[action].action.at + TWO_WEEKS + timedelta(seconds=1)


@pytest.mark.parametrize(
    ("change", "error", "why"),
    [
        (reverse, RefusedError, "was reversed already, by kubectl"),
        (begin_undo, TemporaryError, "is under way"),
        (fail_undo, RefusedError, "ann began its undo"),
        (fail_stop, RefusedError, "stands no more"),
        (delete, RefusedError, "its object was deleted"),
        (pass_two_weeks, RefusedError, "is older than 14d"),
    ],
)
def test_what_is_not_in_force_is_not_requested(
    site: JobSite, change: Callable[[JobSite, str], None], error: type[FallowError], why: str
) -> None:
    action = site.stop_job()
    change(site, action)
    with pytest.raises(error, match=why):
        site.request(action)
    assert event_types.RESUME_REQUESTED not in site.kinds()


def test_a_stop_of_just_two_weeks_ago_is_requested(site: JobSite) -> None:
    action = site.stop_job()
    site.now = site.state().actions[action].action.at + TWO_WEEKS
    assert site.request(action)[0] == action


def test_what_fallow_resumes_by_itself_is_not_requested(site: JobSite) -> None:
    site.policy = msgspec.structs.replace(site.policy, on_pressure=True)
    action = site.stop_job()
    with pytest.raises(RefusedError, match="it is resumed once nobody waits, unrequested"):
        site.request(action)


@pytest.mark.parametrize(
    ("action", "why"), [("nothing", "no action 'nothing' in the journal"), ("", "no action ''")]
)
def test_an_unknown_action_is_an_error_of_usage(site: JobSite, action: str, why: str) -> None:
    site.stop_job()
    with pytest.raises(UsageError, match=why):
        site.request(action)


def test_an_action_that_suspended_no_job_names_the_undo(tmp_path: Path) -> None:
    with JobSite(tmp_path) as site:
        site.deployment()
        action = site.done(site.actor()).action.id
        with pytest.raises(UsageError, match="suspended no job: only Job, JobSet") as caught:
            site.request(action)
        assert str(caught.value.hint).endswith(f"fallow undo {action}")


RESUMES = Policy(
    "back",
    mode="enforce",
    allow=Allow(namespaces=("team-*",)),
    stages=(Stage("act", do=("resume",)),),
)


@pytest.mark.parametrize(
    ("changes", "trusted", "named"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"mode": "notify"}, False, False),
        ({"allow": Allow(namespaces=("team-b",))}, True, False),
        ({"stages": (Stage("act", do=("restart",)),)}, True, False),
    ],
)
def test_only_a_trusted_policy_that_resumes_there_is_promised(
    site: JobSite, changes: dict[str, Any], trusted: bool, named: bool
) -> None:
    action, state = site.stop_job(), site.state()
    policy = msgspec.structs.replace(RESUMES, **changes)
    if trusted:
        trust_by_hand(state, policy, "admin", "a test")
    text = describe_pending_resume(state, action, [policy])
    assert text == (
        "it waits for room, then policy back resumes it"
        if named
        else "it waits for room, and no policy may resume it then: you get a notice at most"
    )
