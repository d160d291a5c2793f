"""An owner has a stopped job back now, or once it has room, and reads what it waits for."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from actions.journal import Journal, event_types
from actions.journal.warehouse_copy import copy_journal
from dashboards import data, signin
from dashboards.signin import Person
from fallow.settings import Settings
from runtime.operations.acting import plans
from runtime.service.api import WriteApi
from runtime.service.endpoint import Endpoint
from runtime.service.metrics import SelfMetrics
from tests.dashboards.acted import Clock, done
from tests.dashboards.drawing import HOSTILE, Draw, hostile_rows, stored, texts
from tests.dashboards.test_sre2_pages import decision, press
from tests.dashboards.test_writing import Heard
from warehouse.lake import Warehouse

NAME = HOSTILE[0]
END = datetime(2026, 11, 16, tzinfo=UTC)
LATER = "Resume when there is room"


class StoppedSite:
    """A dashboard's settings with a suspended Job, a scaled Deployment and a service."""

    def __init__(self, folder: Path, heard: Heard, url: str) -> None:
        self.heard = heard
        settings = Settings(home=folder / "home", cluster=NAME)
        service = settings.service.model_copy(update={"url": url})
        self.settings = settings.model_copy(update={"service": service})
        with Warehouse.open(settings, write=True) as lake:
            stored(lake, *hostile_rows([NAME]))
        stop = msgspec.structs.replace(decision(NAME, 0), verb="suspend")
        scale = (NAME, "Deployment", NAME, "web")
        clock = Clock(END - timedelta(hours=10))
        with Journal.open(plans.get_journal_path(settings), clock, actor="fallow") as journal:
            self.stopped = done(journal, stop, clock, "done")
            self.scaled = done(journal, msgspec.structs.replace(stop, subject=scale), clock, "done")
        self.copy()

    def journal(self, kind: str, actor: str) -> None:
        """Journal a row about the stop, later than every sample, as a person's click is."""
        path = plans.get_journal_path(self.settings)
        with Journal.open(path, lambda: END + timedelta(hours=3), actor=actor) as journal:
            journal.append(kind, self.stopped, {})
        self.copy()

    def copy(self) -> None:
        path = plans.get_journal_path(self.settings)
        with (
            Warehouse.open(self.settings, write=True) as lake,
            Journal.open(path, lambda: END, write=False) as journal,
        ):
            copy_journal(journal, lake, NAME)
        data.forget()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoppedSite]:
    mia = Person("mia", "viewer", groups=(NAME,))
    monkeypatch.setattr(signin, "get_local_person", lambda: mia)
    heard, api = Heard(), WriteApi("", loopback=True)
    with Endpoint("127.0.0.1:0", SelfMetrics(), api=api) as endpoint:
        api.people = heard  # type: ignore[assignment]  # it says what People says
        yield StoppedSite(tmp_path, heard, endpoint.url)


def test_an_owner_requests_a_resume_and_reads_since_when_it_waits(
    site: StoppedSite, draw: Draw
) -> None:
    page = draw("mine/What is coming", site.settings, window="24h", action=site.stopped)
    assert not page.exception
    assert [(b.label, b.disabled) for b in page.button] == [("Resume now", False), (LATER, False)]
    page = press(page, LATER)
    assert site.heard.said == [("resume", site.stopped, "mia")]
    (said,) = (box.value for box in page.success)
    assert "Requested to resume" in said
    assert "it waits for room" in said
    site.journal(event_types.RESUME_REQUESTED, "mia")
    page = draw("mine/What is coming", site.settings, window="24h", action=site.stopped)
    assert [b.label for b in page.button] == ["Resume now"]
    (note,) = (text for text in texts(page) if text.startswith("Requested by"))
    assert "mia" in note
    assert ": it waits for room since 2026-11-16 03:00 UTC." in note


def test_what_is_planned_does_not_deny_a_requested_resume(site: StoppedSite, draw: Draw) -> None:
    def read_plan() -> str:
        page = draw("mine/What is coming", site.settings, window="24h", action=site.stopped)
        (plan,) = (text for text in texts(page) if "No policy has a case about them." in text)
        return plan

    assert "Nothing will happen to these workloads." in read_plan()
    site.journal(event_types.RESUME_REQUESTED, "mia")
    assert "Nothing will happen" not in read_plan()
    assert "1 stopped job resumes once there is room, as requested" in read_plan()
    site.journal(event_types.UNDO_STARTED, "mia")
    assert "Nothing will happen to these workloads." in read_plan()


def test_what_suspended_no_job_is_only_given_back_now(site: StoppedSite, draw: Draw) -> None:
    page = draw("mine/What is coming", site.settings, window="24h", action=site.scaled)
    assert [b.label for b in page.button] == ["Resume now"]


def test_what_its_owner_took_back_has_no_button(site: StoppedSite, draw: Draw) -> None:
    site.journal(event_types.RESUME_REQUESTED, "mia")
    site.journal(event_types.UNDO_STARTED, "mia")
    page = draw("mine/What is coming", site.settings, window="24h", action=site.stopped)
    assert [b.label for b in page.button] == []
    assert not any("waits for room" in text for text in texts(page))
