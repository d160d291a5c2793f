"""Findings, actions, policies and one's own workloads: hostile names, roles, and the buttons."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from actions.journal import Journal, JournalState, event_types
from actions.journal.trust import trust_by_hand
from actions.journal.warehouse_copy import copy_journal
from actions.plan import ActionPlan, RefusedCase
from actions.policy.model import Policy
from dashboards import app, signin
from dashboards.signin import Person
from fallow.action_models import Decision, Reason
from fallow.demo_marker import MARKER, WORLD
from fallow.settings import Settings
from runtime.operations.acting import plan_rows, plans
from runtime.service.api import WriteApi
from runtime.service.endpoint import Endpoint
from runtime.service.metrics import SelfMetrics
from tests.dashboards.acted import Clock, done
from tests.dashboards.drawing import HOSTILE, Draw, elements, hostile_rows, stored, texts
from tests.dashboards.test_writing import Heard
from warehouse.lake import Warehouse

NAME = HOSTILE[0]
END = datetime(2026, 11, 16, tzinfo=UTC)
PAGES = ("findings", "actions", "capacity", "data", "mine")
VIEWS = [part for part in app.list_parts() if part.partition("/")[0] in PAGES]
FIRST = f"{0:012x}"
WHOM = f"Job/{NAME}/{NAME}"
WEEK, DAY = "7 days, 0:00:00", "1 day, 0:00:00"


def decision(name: str, n: int, step: str = "act", *reasons: Reason) -> Decision:
    return Decision(
        id=f"d{n}",
        policy=name,
        finding=f"{n:012x}",
        subject=(name, "Job", name, name),
        verb=name,
        step=step,  # type: ignore[arg-type]
        ruling="hold" if reasons else "allow",
        reasons=reasons,
        at=END,
        next_at=END + timedelta(days=1),
        gpus=2.0,
        owner=name,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Return the settings of a fleet of hostile names that was acted upon."""
    settings = Settings(home=tmp_path_factory.mktemp("acted") / "home", cluster=NAME)
    held = Reason("approval", f"somebody has to approve {NAME}")
    with Warehouse.open(settings, write=True) as lake:
        stored(lake, *hostile_rows([NAME]))
        plan = ActionPlan(
            (decision(NAME, 0, "act", held),),
            (RefusedCase("f2", (NAME, "Job", NAME, "other"), NAME, (Reason("evidence", NAME),)),),
            {NAME: Reason("max_resources", f"too much of {NAME}")},
        )
        rules = [Policy(NAME, description=NAME, mode="enforce")]
        stored(
            lake,
            plan_rows.plan_rows(settings, plan, (), END),
            plan_rows.build_policy_rows(NAME, rules, END),
        )
        clock = Clock(END - timedelta(hours=10))
        with Journal.open(plans.get_journal_path(settings), clock, actor="fallow") as journal:
            case = {"policy": NAME, "finding": f"{0:012x}", "verb": NAME}
            journal.append(
                event_types.APPROVAL_REQUESTED, "d0", {**case, "subject": (NAME, "Job", NAME, NAME)}
            )
            done(journal, decision(NAME, 0), clock, "done", why=NAME)
            journal.append(event_types.REFUSED, "d1", {**case, "line": f"fresh: {NAME}"})
            journal.append(event_types.TRUSTED, NAME, {"fingerprint": rules[0].fingerprint})
            journal.append(event_types.FROZEN, event_types.FLEET, {"why": NAME}, actor=NAME)
            copy_journal(journal, lake, NAME)
    return settings


def test_the_plan_of_a_demo_acts_because_its_fleet_does(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, cluster="c")
    plan = ActionPlan((decision("c", 0),), ())
    rows = plan_rows.plan_rows(settings, plan, (), END).rows
    assert rows["acts"].to_pylist() == [False]
    (tmp_path / MARKER).touch()
    (tmp_path / WORLD).touch()
    rows = plan_rows.plan_rows(settings, plan, (), END).rows
    assert rows["acts"].to_pylist() == [True]


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def served(site: Settings, heard: Heard) -> Iterator[Settings]:
    """Return the site's settings with a service that answers."""
    api = WriteApi("", loopback=True)
    with Endpoint("127.0.0.1:0", SelfMetrics(), api=api) as endpoint:
        api.people = heard  # type: ignore[assignment]  # it says what People says
        there = site.service.model_copy(update={"url": endpoint.url})
        yield site.model_copy(update={"service": there})


@pytest.fixture
def signed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Person], None]:
    """Return a function that signs somebody in."""
    return lambda person: monkeypatch.setattr(signin, "get_local_person", lambda: person)


@pytest.mark.parametrize("view", VIEWS)
def test_names_are_text_and_the_page_is_small(view: str, site: Settings, draw: Draw) -> None:
    chosen = {"window": "24h", "owner": NAME, "finding": FIRST, "request": "d0"}
    page = draw(view, site, **chosen)
    assert not page.exception
    for text in texts(page):
        assert "<script" not in text.replace("\\<", ""), text
        assert "This part of the page failed" not in text
    assert elements(page) <= 30


def test_timeline_shows_what_a_workload_cost_before_and_after_an_action(
    site: Settings, draw: Draw
) -> None:
    action = draw("actions/Done", site, window="24h").dataframe[0].value["id"][0]
    page = draw("timeline", site, window="24h", around=action)
    assert not page.exception
    shown = {metric.label: (metric.value, metric.delta) for metric in page.metric}
    # One GPU at 2 dollars an hour; it was done at 14:30, and that hour is in neither sum.
    assert shown["Cost per day before"] == ("\\$48.0", "mean 1 GPUs, 1d14h")
    assert shown["Cost per day after"] == ("\\$48.0", "mean 1 GPUs, 9h")
    assert shown["Verified saving"] == ("unknown", "not measured yet")
    charts = page.get("vega_lite_chart")
    assert len(charts) == 2
    assert all("2026-11-15T14:30:00Z" in str(chart.proto) for chart in charts)


def test_policy_whose_text_is_trusted_may_act(site: Settings, draw: Draw) -> None:
    page = draw("actions/Policies", site, window="24h")
    assert page.dataframe[0].value["stage"].to_list() == ["may act"]
    assert [m.value for m in page.metric if m.label == "May act"] == ["1"]


def test_policy_trusted_by_hand_says_by_whom_and_why(tmp_path: Path, draw: Draw) -> None:
    settings = Settings(home=tmp_path / "home", cluster="c")
    rule = Policy("idle", mode="enforce")
    path = plans.get_journal_path(settings)
    with Warehouse.open(settings, write=True) as lake, Journal.open(path, lambda: END) as journal:
        stored(
            lake,
            *hostile_rows(["c"]),
            plan_rows.plan_rows(settings, ActionPlan((decision("c", 0),), ()), (), END),
            plan_rows.build_policy_rows("c", [rule], END),
        )
        trust_by_hand(JournalState(journal), rule, "ann", "no complaint in two weeks")
        copy_journal(journal, lake, "c")
    answer = "trusted by hand by ann on 2026-11-16: no complaint in two weeks"
    page = draw("actions/Policies", settings, window="24h")
    assert page.dataframe[0].value["stage"].to_list() == [f"may act: {answer}"]
    plan = texts(draw("actions", settings, window="24h"))
    (line,) = (text for text in plan if "trusted by hand by ann" in text)
    assert "no complaint in two weeks" in line


def test_plan_that_is_called_off_says_so(site: Settings, draw: Draw) -> None:
    page = draw("actions", site, window="24h")
    text = " ".join(w.value for w in page.warning)
    assert "Nothing of the plan is done" in text
    assert "Nothing acts on cluster" in text
    plan = next(d.value for d in page.dataframe if "says" in d.value.columns)
    assert plan["says"].to_list() == ["holds", "refuses"]


def test_a_plan_without_a_case_of_the_filter_says_so(site: Settings, draw: Draw) -> None:
    page = draw("actions", site, window="24h", team="nobody-at-all")
    assert any("The plan has no case for team" in box.value for box in page.info)


def test_refusals_are_grouped_by_gate_with_what_would_change_them(
    site: Settings, draw: Draw
) -> None:
    page = draw("actions/Refusals", site, window="24h")
    rows = page.dataframe[0].value.to_dict("records")
    assert {(row["gate"], row["decision"], row["cases"]) for row in rows} == {
        ("approval", "held", 1),
        ("evidence", "refused", 1),
    }
    change = {row["gate"]: (row["reason"], row["change"]) for row in rows}
    assert change["approval"] == ("nobody approved it yet", "approve it in the tab Approvals")


def test_the_chosen_workload_says_what_will_happen_and_why_not_earlier(
    site: Settings, draw: Draw
) -> None:
    page = draw("mine/What is coming", site, window="24h", owner=NAME, case=WHOM)
    assert not page.exception
    answer = next(m.value for m in page.markdown if "Why not earlier" in m.value)
    assert "once somebody approves it" in answer
    assert "It is due 2026-11-17 00:00 UTC" in answer
    assert "in a whole day" not in answer  # neither a price nor a saving is known


def press(page: AppTest, label: str) -> AppTest:
    """Press a button of this label."""
    return next(b for b in page.button if b.label == label).click().run()


@pytest.mark.parametrize(
    ("view", "query", "label", "said"),
    [
        ("actions", {"request": "d0"}, "Approve", ("approve", "d0", "ann")),
        ("findings", {"finding": FIRST}, "Snooze", ("snooze", FIRST, WEEK, "ann")),
        ("mine", {"owner": NAME, "case": WHOM}, "Keep", ("keep", WHOM, DAY, "ann")),
    ],
    ids=["approve", "snooze", "keep"],
)  # fmt: skip
def test_button_asks_in_the_persons_name(  # noqa: PLR0917
    view: str,
    query: dict[str, str],
    label: str,
    said: tuple[str, ...],
    served: Settings,
    heard: Heard,
    signed: Callable[[Person], None],
    draw: Draw,
) -> None:
    signed(Person("ann", "approver"))
    page = press(draw(view, served, window="24h", **query), label)
    assert heard.said == [said]
    assert any("by" in one.value and "ann" in one.value for one in page.success)


def test_undo_gives_back_an_action(
    served: Settings, heard: Heard, signed: Callable[[Person], None], draw: Draw
) -> None:
    signed(Person("ann", "approver"))
    page = draw("actions/Done", served, window="24h")
    chosen = next(d.value for d in page.dataframe if "result" in d.value.columns)
    action = chosen["id"].to_list()[0]
    press(draw("actions", served, window="24h", action=action), "Undo")
    assert heard.said == [("undo", action, "ann")]


def test_viewer_sees_grey_buttons_but_keeps_what_is_their_own(
    served: Settings, signed: Callable[[Person], None], draw: Draw
) -> None:
    signed(Person("eve", "viewer"))
    page = draw("actions", served, window="24h", request="d0")
    assert [(b.label, b.disabled) for b in page.button] == [("Approve", True)]
    signed(Person("mia", "viewer", groups=(NAME,)))
    mine = draw("mine", served, window="24h", case=WHOM)
    assert ("Keep", False) in [(b.label, b.disabled) for b in mine.button]


def test_service_that_is_down_is_one_line(
    site: Settings, signed: Callable[[Person], None], draw: Draw
) -> None:
    signed(Person("ann", "approver"))
    gone = site.service.model_copy(update={"url": "http://127.0.0.1:9"})
    there = site.model_copy(update={"service": gone})
    page = press(draw("actions", there, window="24h", request="d0"), "Approve")
    assert not page.exception
    assert any("does not answer" in one.value for one in page.warning)
