"""A what-if on the page Queues: one replay at a time, beside the page, with a deadline."""

import threading
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from capacity.replay import answer as answers
from capacity.replay.changes import parse_changes
from dashboards import what_if_runs
from dashboards.what_if_runs import WhatIfQuestion, WhatIfResult, WhatIfRuns
from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.settings import Settings
from fallow.window import Window
from runtime.operations.answers.what_if_beside import answer_beside, answer_question
from tests.dashboards.drawing import Draw, texts
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]
END = datetime(2026, 11, 16, tzinfo=UTC)
WEEK = Window(END - timedelta(days=3), END)
QUESTION = WhatIfQuestion("pool", "H100", 8, WEEK)
ANSWER: dict[str, Any] = {
    "calibration": {"trust": "not to be trusted", "why": "wait p50 of team x"},
    "before": {"waits": {"p50_s": 0.0, "p95_s": 60.0, "p95_is_bound": False}, "utilisation": 0.5,
               "preemptions": 0},
    "after": {"waits": {"p50_s": None, "p95_s": 7200.0, "p95_is_bound": True}, "utilisation": None,
              "preemptions": 3},
    "dollars": {"kind": "cash", "usd": None},
    "what-if": [],
    "notes": ["a note"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def _forget_runs() -> Iterator[None]:
    yield
    what_if_runs._runs.clear()


def wait_for(runs: WhatIfRuns) -> WhatIfResult:
    """Return the result of the running question."""
    deadline_s = time.monotonic() + 60
    while runs.running is not None and time.monotonic() < deadline_s:
        threading.Event().wait(0.01)
    assert runs.last is not None
    return runs.last


def test_one_replay_runs_at_a_time_and_the_last_answer_stays(fleet: Settings) -> None:
    goes_on = threading.Event()

    def answer(_settings: Settings, question: WhatIfQuestion) -> Mapping[str, Any]:
        assert goes_on.wait(60)
        if question.name == "nobody":
            raise UsageError("no such pool", hint="there is H100")
        return ANSWER

    runs = WhatIfRuns(answer, lambda: END)
    assert runs.start(fleet, QUESTION)
    assert runs.running == (QUESTION, END)
    assert not runs.start(fleet, QUESTION), "a second one waits for the first"
    goes_on.set()
    assert wait_for(runs) == WhatIfResult(QUESTION, END, ANSWER)
    assert runs.start(fleet, WhatIfQuestion("pool", "nobody", 1, WEEK))
    refused = wait_for(runs)
    assert refused.error is not None
    assert (refused.answer, refused.error.message) == (None, "no such pool")


def test_a_page_without_one_who_answers_says_where_there_is_one(
    fleet: Settings, draw: Draw
) -> None:
    said = texts(draw("queues", fleet, show="what if"))
    assert any("Nothing answers a what-if here" in text for text in said)


def test_an_answer_that_is_not_to_be_trusted_says_so_above_its_figures(
    fleet: Settings, draw: Draw
) -> None:
    what_if_runs.use_answerer(lambda _settings, _question: ANSWER)
    runs = what_if_runs.get_runs()
    assert runs is not None
    page = draw("queues", fleet, show="what if")
    assert any("No answer since" in text for text in texts(page))
    assert page.button(key="replay").disabled, "nothing is named yet"
    runs.start(fleet, QUESTION)
    wait_for(runs)
    page = draw("queues", fleet, show="what if")
    assert not page.exception
    assert any("Not to be trusted" in box.value for box in page.warning)
    metrics = {metric.label: (metric.value, metric.delta) for metric in page.metric}
    assert metrics["Wait, p50"] == ("unknown", "before: 0s")
    assert metrics["Wait, p95"] == ("≥ 2h", "before: 1m")
    assert metrics["Utilisation"] == ("unknown", "before: 50.0%")
    assert metrics["Preemptions"] == ("3", "before: 0")
    assert metrics["Dollars"][0].startswith("unknown")


def test_the_page_requests_what_its_boxes_say(fleet: Settings, draw: Draw) -> None:
    questions: list[WhatIfQuestion] = []

    def answer(_settings: Settings, question: WhatIfQuestion) -> Mapping[str, Any]:
        questions.append(question)
        return ANSWER

    what_if_runs.use_answerer(answer)
    runs = what_if_runs.get_runs()
    assert runs is not None
    page = draw("queues", fleet, show="what if", option="pool", of="H100", number="8", window="30d")
    page.button(key="replay").click().run()
    wait_for(runs)
    [question] = questions
    assert (question.option, question.name, question.number) == ("pool", "H100", 8)
    assert question.window.end == END
    assert timedelta(hours=1) <= question.window.end - question.window.start <= timedelta(days=7)
    assert question.words[:4] == ("fallow", "what-if", "--pool", "H100=8")


def test_the_process_answers_as_the_command_does(fleet: Settings) -> None:
    body = answer_beside(fleet, QUESTION)
    with Warehouse.open(fleet) as warehouse:
        expected = answers.answer_what_if(warehouse, WEEK, parse_changes((), ("H100=8",), ()), None)
    assert body["difference"] == answers.describe_difference(expected)
    assert body["dollars"]["kind"] == "cash"
    assert body["calibration"]["trust"] == expected.calibration.trust
    assert len(body["what-if"]) == len(answers.build_team_rows(expected))


def test_a_question_about_what_the_site_does_not_have_is_refused(fleet: Settings) -> None:
    with pytest.raises(FallowError, match="B200"):
        answer_question(fleet, WhatIfQuestion("pool", "B200", 8, WEEK))


def test_a_replay_that_takes_too_long_is_ended_and_names_the_command(fleet: Settings) -> None:
    with pytest.raises(TemporaryError, match=r"more than 0\.01 s") as caught:
        answer_beside(fleet, QUESTION, deadline_s=0.01)
    assert "fallow what-if --pool H100=8" in str(caught.value.hint)
