"""A page's figures are read while its scripts load: which, for whom, and one page at a time."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from dashboards import active_settings, app, data, reading_ahead, warmup, web_app
from fallow.dashboard_settings import OidcSettings
from fallow.settings import Settings
from tests.dashboards.drawing import Draw

DOCUMENT = {"sec-fetch-dest": "document"}
AHEAD = [name for name in app.list_names() if hasattr(app._import_page(name), "list_figures")]
WINDOW = "48h"


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[str, dict[str, str]]]]:
    """Return what is read, as page and parameters; nothing is."""
    calls: list[tuple[str, dict[str, str]]] = []
    done = threading.Event()

    def read(name: str, parameters: dict[str, str]) -> None:
        calls.append((name, parameters))
        done.wait(10)

    monkeypatch.setattr(reading_ahead, "read_page", read)
    monkeypatch.setattr(reading_ahead, "_people", set())
    active_settings.use_settings(Settings())
    yield calls
    done.set()
    with reading_ahead._reading:  # the thread has ended
        pass


@pytest.mark.slow
@pytest.mark.xdist_group("pages")
@pytest.mark.parametrize("view", AHEAD)
def test_a_page_requests_what_was_read_ahead(
    view: str, fleet: Settings, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, requested = data.query, set()

    def note(figure: Any, *args: Any) -> Any:
        requested.add((figure.__module__, figure.__qualname__, repr(args)))
        return query(figure, *args)

    monkeypatch.setattr(data, "query", note)
    draw(view, fleet, window=WINDOW, team="vision")
    of_page = {*requested}
    requested.clear()
    reading_ahead.read_page(view, {"window": WINDOW, "team": "vision"})
    assert len(requested) > 4
    assert not requested - of_page


def test_only_a_document_that_a_browser_opens_is_read_ahead(begun: list[Any]) -> None:
    for headers in ({}, {"sec-fetch-dest": "image"}, {"sec-fetch-dest": "script"}):
        assert not reading_ahead.start("spend", "window=7d", headers)
    assert reading_ahead.start("spend", "window=7d&team=a%20b", DOCUMENT)
    assert not reading_ahead.start("health", "", DOCUMENT), "one page at a time"
    assert begun == [("spend", {"window": "7d", "team": "a b"})]


def test_where_people_sign_in_only_who_saw_a_page_has_it_read_ahead(begun: list[Any]) -> None:
    oidc = OidcSettings(
        client_id="a", client_secret="b" * 40, metadata_url="https://id.example/m",
        redirect_uri="https://pages.example/oauth2callback", cookie_secret="c" * 40, viewers=["g"],
    )  # fmt: skip
    settings = Settings()
    dashboard = settings.dashboard.model_copy(update={"oidc": oidc})
    active_settings.use_settings(settings.model_copy(update={"dashboard": dashboard}))
    cookie = {"cookie": "_streamlit_user=signed; other=1"}
    assert not reading_ahead.start("spend", "", DOCUMENT)
    assert not reading_ahead.start("spend", "", DOCUMENT | cookie)
    reading_ahead.remember_person({"_streamlit_user": "signed", "other": "2"})
    assert not reading_ahead.start("spend", "", DOCUMENT | {"cookie": "_streamlit_user=forged"})
    assert begun == []
    assert reading_ahead.start("spend", "", DOCUMENT | cookie)


@pytest.mark.parametrize(
    ("path", "base_path", "name"),
    [
        ("/", "", "overview"),
        ("/gpu-hours", "", "gpu_hours"),
        ("/gpu-hours/", "", "gpu_hours"),
        ("/fleet/costs/spend", "fleet/costs", "spend"),
        ("/static/js/index.js", "", None),
        ("/_stcore/health", "", None),
        ("/spend/_stcore/health", "", None),
        ("/gpu_hours", "", None),
    ],
)
def test_the_documents_of_pages_differ_from_other_files(
    path: str, base_path: str, name: str | None
) -> None:
    assert app.find_name(path, base_path) == name


def test_a_request_for_a_page_begins_its_reading_and_is_answered(begun: list[Any]) -> None:
    answered = []

    async def answer(scope: Any, _receive: Any, _send: Any) -> None:
        answered.append(scope["path"])

    early = web_app.EarlyReading(answer)
    headers = [(b"Sec-Fetch-Dest", b"document")]
    for path in ("/static/js/index.js", "/health"):
        scope = {
            "type": "http", "method": "GET", "path": path, "query_string": b"window=24h",
            "headers": headers,
        }  # fmt: skip
        asyncio.run(early(scope, None, None))  # type: ignore[arg-type]
    assert answered == ["/static/js/index.js", "/health"]
    assert begun == [("health", {"window": "24h"})]


def test_the_start_reads_no_window_and_a_request_audits_its_days(
    hostile: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    active_settings.use_settings(hostile)
    read: list[str] = []
    for kind in ("query", "query_rarely"):
        monkeypatch.setattr(data, kind, _note(getattr(data, kind), read))
    warmup.read_first()
    assert read == ["read_extent", "read_names", "find_newest", "read_ages"]
    reading_ahead.read_page("overview", {})
    assert "read_audits" in read
    assert "compute_waterfall" in read


def _note(query: Any, read: list[str]) -> Any:
    def noted(figure: Any, *args: Any) -> Any:
        read.append(figure.__name__)
        return query(figure, *args)

    return noted
