"""Signing in by OpenID Connect, against a provider that checks what real ones check."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser

from dashboards.figures import inbox, owner_workloads, policy_actions
from dashboards.figures.query import Filters
from fallow.settings import Settings
from fallow.window import Window
from runtime.experiments import demo
from tests.browser.neighbours import given
from tests.browser.provider import CLIENT, SECRET, Provider, Service, answering
from tests.browser.serving import dashboard, free_port
from tests.browser.visiting import Visitor
from warehouse.lake import Warehouse

pytestmark = [pytest.mark.xdist_group("browser"), pytest.mark.timeout(900)]
NAME = "ann <b>o'neil</b>@example.org"


class Site:
    """A dashboard that people sign in to, who signs them in, and the service it asks."""

    def __init__(self, browser: Browser, url: str, provider: Provider, service: Service) -> None:
        self.browser, self.url, self.provider, self.service = browser, url, provider, service

    def sends(self, *groups: str, name: str = NAME, verified: bool = True) -> Visitor:
        """Return somebody of these groups who came, and pressed `Sign in`."""
        who = {"sub": "1", "email": name, "email_verified": verified, "groups": [*groups]}
        self.provider.who = who
        visitor = Visitor(self.browser, self.url)
        visitor.friends.add(urlsplit(self.provider.url).netloc)
        page = visitor.go("")
        assert page.locator("h1").all_inner_texts() == ["Fallow"]
        assert page.locator("[data-testid=stMetric], [data-testid=stSidebarNav]").count() == 0
        page.get_by_role("button", name="Sign in").click()
        page.get_by_role("button", name="Sign out").wait_for()
        visitor.arrive()
        return visitor


@pytest.fixture(scope="session")
def site(
    browser: Browser, settings: Settings, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """Return a dashboard of the same warehouse that people sign in to."""
    port = free_port()
    back = f"http://127.0.0.1:{port}/oauth2callback"
    provider, service = Provider(back), Service()
    with answering(provider), answering(service):
        oidc: dict[str, Any] = {
            "metadata_url": f"{provider.url}/.well-known/openid-configuration",
            "client_id": CLIENT,
            "client_secret": SECRET,
            "redirect_uri": back,
            "cookie_secret": "c" * 32,
            "viewers": ["finance"],
            "operators": ["sre"],
            "approvers": ["leads"],
        }
        more = {
            "dashboard": {"oidc": oidc},
            "service": {"url": service.url, "token": SECRET},
        }
        with dashboard(tmp_path_factory.mktemp("signed"), given(settings, **more), port) as url:
            yield Site(browser, url, provider, service)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "role"),
    [
        (["sre", "finance"], "operator"),
        # The role of each group: tests/dashboards/test_serving.py, without a browser.
        pytest.param(["finance"], "viewer", marks=pytest.mark.long),
        pytest.param(["leads"], "approver", marks=pytest.mark.long),
    ],
)
def test_who_signs_in_has_the_role_of_the_claims(site: Site, groups: list[str], role: str) -> None:
    with site.sends(*groups) as visitor:
        assert f"{NAME}, {role}" in visitor.text("[data-testid=stSidebar]")
        assert visitor.page.locator("[data-testid=stSidebar] b").count() == 0
        assert visitor.page.locator("[data-testid=stMetric]").count() > 0
        cookies = visitor.context.cookies()
        assert all(cookie["httpOnly"] for cookie in cookies if "user" in cookie["name"])
        visitor.hears_nothing()


# tests/dashboards/test_serving.py: who is signed in and has no role is refused.
@pytest.mark.long
def test_without_a_role_nothing_is_shown(site: Site) -> None:
    with site.sends("strangers") as visitor:
        assert "has no role here" in visitor.alerts("Error")[0]
        assert (
            visitor.page.locator("[data-testid=stMetric], [data-testid=stDataFrame]").count() == 0
        )
        assert visitor.page.locator("[data-testid=stSidebarNav] a").count() == 0
        visitor.hears_nothing()


# tests/dashboards/test_serving.py: whoever has no role, an unverified address too, sees nothing.
@pytest.mark.long
def test_an_address_that_nobody_verified_shows_nothing(site: Site) -> None:
    with site.sends("leads", verified=False) as visitor:
        assert "is not verified" in visitor.alerts("Error")[0]
        assert visitor.page.locator("[data-testid=stSidebarNav] a").count() == 0
        visitor.hears_nothing()


def test_code_of_somebody_else_signs_nobody_in(site: Site) -> None:
    with Visitor(site.browser, site.url) as visitor:
        visitor.page.goto(f"{site.url}/oauth2callback?code=guessed&state=guessed")
        visitor.arrive()
        assert visitor.page.get_by_role("button", name="Sign in").count() == 1


class Wish(NamedTuple):
    """What somebody asks for on a page: what to choose there, and what the service then reads."""

    path: str
    chosen: dict[str, str]
    label: str
    what: str
    body: dict[str, str]


@pytest.fixture(scope="session")
def wishes(settings: Settings) -> list[Wish]:
    """Return one wish of each kind about what lies in the warehouse."""
    window = Window(demo.END - timedelta(days=2), demo.END)
    with Warehouse.open(settings) as views:
        found = inbox.list_inbox(views, window, Filters()).to_pylist()[0]["id"]
        waits = policy_actions.read_waiting(views, Filters()).to_pylist()[0]["id"]
        rows = policy_actions.read_actions_done(views, window, Filters()).to_pylist()
        took = next(row["id"] for row in rows if row["result"] == "done")
        decided = policy_actions.plan(views, Filters()).to_pylist()
        owner = decided[0]["owner"]
        case = owner_workloads.read_coming(views, Filters(), (owner,)).to_pylist()[0]
    recipient = f"{case['workload_kind']}/{case['namespace']}/{case['workload']}"
    return [
        Wish("inbox", {"finding": found}, "Snooze", "snooze", {"finding": found, "for": "7d"}),
        Wish("actions", {"request": waits}, "Approve", "approve", {"request": waits}),
        Wish("actions", {"action": took}, "Undo", "undo", {"action": took}),
        Wish(
            "coming",
            {"owner": owner, "case": recipient},
            "Keep",
            "keep",
            {"workload": recipient, "for": "24h"},
        ),
    ]


@pytest.mark.slow
def test_what_people_ask_reaches_the_service_in_their_name(site: Site, wishes: list[Wish]) -> None:
    with site.sends("leads") as visitor:
        for wish in wishes:
            page = visitor.go(wish.path, window="2d", **wish.chosen)
            page.locator("[data-testid=stMain] button", has_text=wish.label).click()
            done = page.locator("[data-testid=stAlertContentSuccess]", has_text="o'neil")
            done.wait_for()
            who = {"by": NAME}
            if wish.what == "approve":
                who["oidc_subject"] = f"{site.provider.url} 1"
            assert site.service.asked[-1] == (wish.what, {**wish.body, **who})
        visitor.hears_nothing()


# tests/dashboards/test_sre2_pages.py: buttons of a viewer are disabled.
@pytest.mark.long
def test_viewer_sees_buttons_that_do_nothing(site: Site, wishes: list[Wish]) -> None:
    before = len(site.service.asked)
    with site.sends("finance") as visitor:
        page = visitor.go(wishes[0].path, window="2d", **wishes[0].chosen)
        buttons = page.locator("[data-testid=stMain] button", has_text="Snooze").all()
        assert buttons
        assert all(button.is_disabled() for button in buttons)
    assert len(site.service.asked) == before
