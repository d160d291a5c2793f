"""Who may see the pages, and where they answer."""

import re
import socket
import stat
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from streamlit.testing.v1 import AppTest
from streamlit.web.server.starlette import starlette_server

from dashboards import active_settings, serving, signin
from fallow.errors import UsageError
from fallow.settings import Settings
from fallow.settings.dashboard import DashboardSettings, OidcSettings

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pages")]  # the demo's fleet is played once

OIDC = OidcSettings(
    metadata_url="https://id.example/.well-known/openid-configuration",
    client_id="fallow",
    client_secret="s3cret\"\\'",
    redirect_uri="https://fallow.example/oauth2callback",
    cookie_secret="c" * 32,
    viewers=["finance"],
    operators=["sre"],
    approvers=["leads"],
)
NOW = datetime.now(UTC).timestamp()
ISSUER = "https://id.example/realms/site"
ANN = {"iss": ISSUER, "sub": "1", "email": "ann@example", "email_verified": True, "iat": NOW}


def settings(home: Path, oidc: OidcSettings = OIDC, listen: str = "0.0.0.0:8501") -> Settings:
    return Settings(home=home, dashboard=DashboardSettings(listen=listen, oidc=oidc))


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["finance"]}, "viewer"),
        ({"groups": ["finance", "sre"]}, "operator"),
        ({"groups": ["leads", "finance"]}, "approver"),
        ({"groups": "sre"}, "operator"),
        ({"groups": ["Finance", "leads ", "financ"]}, None),
        ({"groups": []}, None),
        ({"groups": None}, None),
        ({"groups": {"leads": True}}, None),
        ({"groups": [["leads"], 1, None]}, None),
        ({"groups": 7}, None),
        ({}, None),
        ({"roles": ["leads"]}, None),
    ],
)
def test_role_is_the_highest_that_claims_give(claims: dict[str, Any], role: str | None) -> None:
    assert signin.find_role(claims, OIDC) == role


@pytest.mark.parametrize("name", ["realm_access.roles", "https://fallow.example/roles"])
def test_roles_may_lie_deep_or_under_an_address(name: str) -> None:
    oidc = OIDC.model_copy(update={"roles_claim": name})
    deep = {"realm_access": {"roles": ["sre"]}, "https://fallow.example/roles": ["sre"]}
    assert signin.find_role(deep, oidc) == "operator"
    assert signin.find_role({"realm_access": ["sre"]}, oidc) is None


@pytest.mark.parametrize(("may_approve", "role"), [(False, "operator"), (True, "approver")])
def test_without_a_sign_in_only_a_setting_lets_people_approve(
    tmp_path: Path, *, may_approve: bool, role: str
) -> None:
    own = DashboardSettings(approve_without_sign_in=may_approve)
    active_settings.use_settings(Settings(home=tmp_path, dashboard=own))
    assert signin.get_local_person().role == role


def test_roles_include_those_below() -> None:
    operator = signin.Person("ann", "operator")
    assert [operator.may(role) for role in signin.ROLES] == [True, True, False]


@pytest.mark.parametrize(
    ("claims", "expected"),
    [({"iat": NOW}, False), ({"iat": NOW - 13 * 3600}, True), ({}, True), ({"iat": "now"}, True)],
)
def test_sign_in_ends_after_its_time(claims: dict[str, Any], expected: bool) -> None:
    assert signin.is_expired(claims, OIDC, datetime.now(UTC)) is expected


def drawn(
    monkeypatch: pytest.MonkeyPatch, wanted: Settings, claims: Mapping[str, Any] | None
) -> AppTest:
    active_settings.use_settings(wanted)
    monkeypatch.setattr(signin, "get_claims", lambda: claims)
    return AppTest.from_string("from dashboards.app import main\nmain()", default_timeout=60).run()


def test_nobody_signed_in_sees_a_button_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    page = drawn(monkeypatch, settings(tmp_path), None)
    assert [b.label for b in page.button] == ["Sign in"]
    assert not page.metric
    assert not page.sidebar.selectbox


def test_signed_in_without_a_role_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claims = {**ANN, "email": "<b>eve</b>@example", "groups": ["others"]}
    page = drawn(monkeypatch, settings(tmp_path), claims)
    assert "has no role here" in page.error[0].value
    assert "<b>" not in re.sub(r"\\.", "", page.error[0].value)
    assert [b.label for b in page.button] == ["Sign out"]
    assert not page.metric
    assert not page.sidebar.selectbox


def test_signed_in_with_a_role_sees_pages(fleet: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = fleet.model_copy(update={"dashboard": settings(fleet.home).dashboard})
    page = drawn(monkeypatch, wanted, {**ANN, "groups": ["finance"]})
    assert not page.exception
    assert page.metric
    assert "ann@example, viewer" in [t.value for t in page.sidebar.text]


UNTOLD = {k: v for k, v in ANN.items() if k != "email_verified"}


@pytest.mark.parametrize(
    ("claims", "more", "refused"),
    [
        (ANN, {}, False),
        ({**ANN, "email_verified": "true"}, {}, False),
        ({**ANN, "email_verified": False}, {}, True),
        ({**ANN, "email_verified": "false"}, {}, True),
        ({**ANN, "email_verified": 1}, {}, True),
        (UNTOLD, {}, True),
        (UNTOLD, {"verified_email": False}, False),
        ({**ANN, "email_verified": False}, {"verified_email": False}, True),
        (UNTOLD, {"name_claim": "preferred_username"}, False),
        (UNTOLD, {"name_claim": "sub", "roles_claim": "email"}, True),
        ({"sub": "1"}, {}, False),
    ],
)
def test_an_address_counts_only_when_the_provider_verified_it(
    claims: dict[str, Any], more: dict[str, Any], refused: bool
) -> None:
    assert signin.is_unverified(claims, OIDC.model_copy(update=more)) is refused


def test_an_unverified_address_has_no_role_and_sees_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claims = {**ANN, "email_verified": False, "groups": ["leads"]}
    page = drawn(monkeypatch, settings(tmp_path), claims)
    assert "is not verified" in page.error[0].value
    assert [b.label for b in page.button] == ["Sign out"]
    assert not page.metric
    assert not page.sidebar.selectbox


@pytest.mark.parametrize("missing", ["iss", "sub"])
def test_a_token_that_names_no_subject_has_no_role(
    missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    claims = {k: v for k, v in {**ANN, "groups": ["leads"]}.items() if k != missing}
    page = drawn(monkeypatch, settings(tmp_path), claims)
    assert "has no role here" in page.error[0].value


def test_the_subject_is_of_its_issuer() -> None:
    elsewhere = {**ANN, "iss": "https://other.example"}
    assert signin.get_subject(ANN) == f"{ISSUER} 1"
    assert signin.get_subject(elsewhere) != signin.get_subject(ANN)


def test_without_sign_in_pages_say_so(fleet: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signin, "_bound_to_loopback", lambda: True)
    page = drawn(monkeypatch, fleet, None)
    assert any("this machine only" in c.value for c in page.sidebar.caption)
    assert page.metric


def test_without_sign_in_and_not_on_loopback_nothing_is_shown(
    fleet: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signin, "_bound_to_loopback", lambda: False)
    page = drawn(monkeypatch, fleet, None)
    assert "answers on its own machine only" in page.error[0].value
    assert not page.metric


@pytest.mark.parametrize("listen", ["0.0.0.0:8501", "[::]:8501", "example.org:80", "10.0.0.1:1"])
def test_without_sign_in_only_loopback_is_bound(listen: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="this machine only"):
        serving.address(settings(tmp_path, OidcSettings(), listen))
    assert serving.address(settings(tmp_path, OIDC, listen))[1] > 0


@pytest.mark.parametrize("listen", ["127.0.0.1:8501", "localhost:1", "[::1]:8501", "127.3.2.1:9"])
def test_loopback_is_bound_without_sign_in(listen: str, tmp_path: Path) -> None:
    assert serving.address(settings(tmp_path, OidcSettings(), listen))[1] > 0


@pytest.mark.parametrize("listen", ["", "8501", "127.0.0.1", ":8501", "127.0.0.1:x", "a:99999"])
def test_address_that_is_none_is_refused(listen: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no host:port"):
        serving.address(settings(tmp_path, OidcSettings(), listen))


def test_options_bind_and_name_hosts(tmp_path: Path) -> None:
    local = serving.build_options(settings(tmp_path, OidcSettings()), "127.0.0.1", 8501, None)
    assert local["server_address"] == "127.0.0.1"
    assert "localhost" in local["server_allowedHosts"]
    assert local["browser_gatherUsageStats"] is False
    assert local["runner_magicEnabled"] is False
    assert "server_allowedHosts" not in serving.build_options(
        settings(tmp_path), "0.0.0.0", 80, None
    )


def test_secrets_lie_where_nobody_else_reads_and_go(tmp_path: Path) -> None:
    import tomllib  # noqa: PLC0415

    with serving._write_secrets(settings(tmp_path)) as path:
        assert path is not None
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        auth = tomllib.loads(path.read_text())["auth"]
        assert auth["client_secret"] == "s3cret\"\\'"
        assert auth["server_metadata_url"] == OIDC.metadata_url
    assert not path.exists()


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        ("client_id", "client_id is needed"),
        ("client_secret", "client_secret is needed"),
        ("redirect_uri", "redirect_uri is needed"),
        ("cookie_secret", "32 characters"),
        ("viewers", "nobody could sign in"),
    ],
)
def test_half_a_sign_in_is_refused(missing: str, said: str) -> None:
    given = OIDC.model_dump() | {missing: [] if missing == "viewers" else ""}
    if missing == "viewers":
        given |= {"operators": [], "approvers": []}
    with pytest.raises(ValidationError, match=said):
        OidcSettings(**given)


def test_small_packets_of_the_pages_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starlette_server, "_bind_socket", starlette_server._bind_socket)
    serving.send_without_delay()
    with starlette_server._bind_socket("127.0.0.1", 0, 1) as listening:
        listening.setblocking(True)
        with socket.create_connection(listening.getsockname()), listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
