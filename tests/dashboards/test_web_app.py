"""Headers of every response of the app, and the policy that they carry."""

import asyncio
import base64
import hashlib
from typing import Any

import pytest

from dashboards import active_settings, app, web_app
from dashboards.views import findings
from fallow.settings import Settings
from fallow.settings.dashboard import DashboardSettings, OidcSettings

INDEX = "<head><script>\n  run()\n</script><script type='module' src='a.js'></script></head>"


def directives(index: str) -> dict[str, str]:
    return {
        name: value
        for name, _, value in (d.partition(" ") for d in web_app.build_policy(index).split("; "))
    }


def test_scripts_inside_the_document_are_named_by_their_hashes() -> None:
    digest = base64.b64encode(hashlib.sha256(b"\n  run()\n").digest()).decode()
    policy = directives(INDEX)
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert directives("<head></head>")["script-src"] == "'self'"


def test_the_policy_allows_no_other_site_and_evaluates_nothing() -> None:
    policy = directives(web_app.INDEX.read_text(encoding="utf-8"))
    assert policy["frame-ancestors"] == "'none'"
    assert policy["default-src"] == policy["connect-src"] == "'self'"
    text = " ".join(policy.values())
    assert "unsafe-eval" not in text
    assert "http" not in text
    assert "*" not in text
    assert "unsafe-inline" not in policy["script-src"]


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        (None, True),
        ("http://fallow.internal:8501", True),
        ("https://fallow.internal", False),
        ("https://fallow.example", True),
        ("https://gpu.example:8443", True),
        ("https://evil.example", False),
        ("https://fallow.example.evil.example", False),
        ("https://evil@fallow.example", False),
        ("null", False),
        ("", False),
        ("http://[", False),
    ],
)
def test_only_own_pages_may_write(origin: str | None, *, expected: bool) -> None:
    oidc = OidcSettings.model_construct(redirect_uri="https://fallow.example/oauth2callback")
    own = DashboardSettings(hosts=["gpu.example"]).model_copy(update={"oidc": oidc})
    active_settings.use_settings(Settings(dashboard=own))
    headers = {b"host": "fallow.internal:8501"} | ({} if origin is None else {b"origin": origin})
    assert web_app.is_own_origin(headers) is expected


async def _answer(inner: Any) -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    await web_app.SecuredApp(inner, {"x-frame-options": "DENY"})({"type": "http"}, receive, send)
    return sent


@pytest.mark.parametrize("code", [200, 404, 500])
def test_headers_stand_on_every_answer_once(code: int) -> None:
    async def inner(_scope: Any, _receive: Any, send: Any) -> None:
        headers = [(b"X-Frame-Options", b"SAMEORIGIN"), (b"etag", b"1")]
        await send({"type": "http.response.start", "status": code, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    start, body = asyncio.run(_answer(inner))
    assert start["headers"] == [(b"etag", b"1"), (b"x-frame-options", b"DENY")]
    assert body["body"] == b"x"


@pytest.mark.parametrize(
    ("path", "query", "target"),
    [
        ("/inbox", "finding=ab&team=a%26b", "findings?finding=ab&team=a%26b"),
        ("/base/waste", "by=pool", "spend?tab=Waste+by+owner&by=pool"),
        ("/units/", "", "../unit-cost"),
        ("/spend", "by=pool", None),
        ("/", "", None),
        ("/static/js/inbox.js", "", None),
    ],
)
def test_an_old_address_leads_to_its_page_with_its_parameters(
    path: str, query: str, target: str | None
) -> None:
    assert web_app.find_new_address(path, query) == target


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("/a/b", "../no-page?address=a%2Fb"),
        ("/base/a/b/", "../../no-page?address=a%2Fb"),
        ("/base/spend", None),
        ("/static/js/index.js", None),
        ("/_stcore/health", None),
        ("/spend/_stcore/health", None),
    ],
)
def test_a_path_of_several_folders_is_no_page(path: str, target: str | None) -> None:
    assert web_app.find_page_of_nested(path, "base") == target


def test_every_old_address_leads_to_a_tab_that_exists() -> None:
    targets = set(web_app.OLD_ADDRESSES.values())
    there = {
        (app.build_url_path(page), tab)
        for page, _, tab in (p.partition("/") for p in app.list_parts())
    }
    there |= {(app.build_url_path(name), "") for name in app.list_names()}
    assert targets <= there | {("findings", findings.OLD_TAB)}, "that tab is a kind of finding now"
    assert not {*web_app.OLD_ADDRESSES} & {app.build_url_path(name) for name in app.list_names()}


async def _request(application: Any, path: str, method: str = "GET") -> list[Any]:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nothing is read")

    scope = {"type": "http", "method": method, "path": path, "query_string": b"team=x"}
    await application(scope, receive, send)
    return sent


async def _refuse(_scope: Any, _receive: Any, _send: Any) -> None:
    raise AssertionError("the app is not asked")


def test_a_request_for_an_old_address_is_answered_with_the_new_one() -> None:
    sent = asyncio.run(_request(web_app.MovedPages(_refuse), "/heatmap"))
    assert sent[0]["status"] == 308
    assert dict(sent[0]["headers"])[b"location"] == b"gpu-hours?tab=Hours+of+the+week&team=x"


@pytest.mark.parametrize(
    ("path", "base_path", "answer"),
    [
        ("/", "", True),
        ("/gpu-hours", "", True),
        ("/no-page", "", True),
        ("/gpu-hours/", "", False),
        # No page, and its document says so: it asks for the server where it is.
        ("/gpu_hours", "", True),
        ("/nonsense", "fleet/costs", False),
        ("/fleet/costs/nonsense", "fleet/costs", True),
        ("/oauth2callback", "", False),
        ("/_stcore", "", False),
        ("/favicon.png", "", False),
        ("/fleet/costs/", "fleet/costs", True),
        ("/fleet/costs", "fleet/costs", False),
        ("/fleet/costs/spend", "fleet/costs", True),
        ("/spend", "fleet/costs", False),
        ("/static/js/index.js", "", False),
        ("/spend/_stcore/health", "", False),
    ],
)
def test_a_page_is_the_address_from_which_its_document_finds_its_scripts(
    path: str, base_path: str, answer: bool
) -> None:
    assert web_app.is_page(path, base_path) == answer


def test_the_document_of_a_page_says_where_the_server_is_before_any_script() -> None:
    """Else the client tries the page's own folder too: four errors in the browser's console."""
    document = web_app.DOCUMENT
    assert web_app.BACKEND in document
    assert document.index(web_app.BACKEND) < document.index("/DataFrame.")
    inline = web_app.BACKEND.removeprefix("<script>").removesuffix("</script>")
    digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in web_app.build_policy(document)


def test_the_document_of_a_page_names_the_scripts_of_its_elements() -> None:
    files = ["Selectbox.a1.js", "SelectboxOther.b.js", "DataFrame.-c.js", "DataFrame.css"]
    index = web_app.add_early_scripts("<head>\n  </head>", files)
    assert index.count("<script type") == 2
    assert index.index("/Selectbox.a1.js") < index.index("/DataFrame.-c.js")
    for name in web_app.EARLY_SCRIPTS:
        assert f"./static/js/{name}." in web_app.DOCUMENT, "this Streamlit has the script"


def test_pages_have_one_document_and_other_files_are_the_apps() -> None:
    documents = web_app.PageDocuments(_refuse, "<html>")
    for method, body in (("GET", b"<html>"), ("HEAD", b"")):
        start, end = asyncio.run(_request(documents, "/spend", method))
        assert (start["status"], end["body"]) == (200, body)
        assert dict(start["headers"])[b"cache-control"] == b"no-cache"
        assert dict(start["headers"])[b"content-length"] == b"6"
    for path, method in (("/static/a.js", "GET"), ("/spend", "POST")):
        with pytest.raises(AssertionError, match="not asked"):
            asyncio.run(_request(documents, path, method))
