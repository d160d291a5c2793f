"""Texts without the secrets of URLs, connection strings, headers and settings."""

import json
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from fallow import redaction
from fallow.errors import FallowError
from fallow.redaction import redact, remember_secrets
from fallow.settings import Settings, load
from fallow.settings.collectors import PrometheusSettings
from fallow.settings.groups import list_secrets


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let each test begin with no values of other tests."""
    monkeypatch.setattr(redaction, "_values", set())
    redaction._compile_values.cache_clear()
    yield
    redaction._compile_values.cache_clear()


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("http://u:p@h:9090/x", "http://***@h:9090/x"),
        ("https://token@h", "https://***@h"),
        ("postgresql://u:p@ss@h/db", "postgresql://***@h/db"),
        ("postgres:dbname=d password=p host=h", "postgres:dbname=d password=*** host=h"),
        ("password = 'a b' host=h", "password = *** host=h"),
        ('at "dbname=d password=p"', 'at "dbname=d password=***"'),
        ("http://h/x?token=p&a=b", "http://h/x?token=***&a=b"),
        ("http://h/x?a=b&api_key=p", "http://h/x?a=b&api_key=***"),
        ("http://h/x?X-Amz-Signature=p#y", "http://h/x?X-Amz-Signature=***#y"),
        ("Authorization: Bearer p", "Authorization: Bearer ***"),
        ('{"Authorization": "Basic cDpw"}', '{"Authorization": "Basic ***"}'),
        ("{'X-Api-Key': 'p'}", "{'X-Api-Key': '***'}"),
        ("Bearer abcdefghijklmnop.q", "Bearer ***"),
    ],
)
def test_a_secret_is_found_by_its_place(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "a mail to me@example.com about http://h/x",
        "http://h:9090/x?query=up",
        "set prometheus.bearer_token, or prometheus.username and password",
        'password authentication failed for user "fallow"',
        "the bearer of this",
        "s3://bucket/prefix/key=1/x.parquet",
        "namespace/pod=http://h:1/metrics",
    ],
)
def test_other_texts_stay(text: str) -> None:
    assert redact(text) == text


PASSWORDS = st.text(
    st.characters(categories=["L", "N", "P", "S"], exclude_characters="/?#@\\\"'<>"), min_size=1
)


@given(PASSWORDS, st.sampled_from(["http", "https", "postgresql", "json"]))
def test_no_password_of_a_url_stays(password: str, scheme: str) -> None:
    assert redact(f"GET {scheme}://me:{password}@host:1/x failed") == (
        f"GET {scheme}://***@host:1/x failed"
    )


@given(st.text(min_size=redaction.LEAST))
def test_a_known_secret_is_found_in_every_form(secret: str) -> None:
    remember_secrets([secret])
    for form in (secret, quote(secret, safe=""), json.dumps(secret)[1:-1]):
        assert form not in redact(f"a {form} b").replace("***", "\0") or len(form) < 8


def test_a_short_secret_is_no_word_to_look_for() -> None:
    remember_secrets(["team"])
    assert redact("the team's GPUs") == "the team's GPUs"


def test_no_secret_leaves_the_end_of_a_longer_one() -> None:
    secrets = ["pass-word-of-the-site"[:n] for n in range(8, 22)]
    remember_secrets(secrets)
    assert [redact(f"at {secret}!") for secret in secrets] == ["at ***!"] * len(secrets)


def test_the_secrets_of_settings_are_known_once_they_are_in_force() -> None:
    flags = {
        "prometheus.url": "http://me:url%20password@h:9090",
        "prometheus.password": "field-password",
        "prometheus.headers": {
            "Authorization": "Bearer head-token",
            "X-Scope-OrgID": "our-tenants",
        },
        "warehouse.catalog": "postgres:dbname=d password='dsn password' host=h",
        "exporters.targets": ["http://h:1/metrics?token=query-token"],
        "notices.channels": {"a": {"url": "json://me:channel-password@h/x"}},
    }
    load(environ={}, flags=flags)
    for secret in (
        "url password", "url%20password", "field-password", "head-token", "dsn password",
        "query-token", "channel-password",
    ):  # fmt: skip
        assert redact(f"it says {secret}.") == "it says ***."
    assert redact("of our-tenants") == "of our-tenants"


def test_every_secret_field_of_the_settings_is_listed() -> None:
    settings = Settings(prometheus=PrometheusSettings(bearer_token=SecretStr("some-token-of-ours")))
    assert "some-token-of-ours" in set(list_secrets(settings))


def test_an_error_has_no_password_from_its_first_moment() -> None:
    error = FallowError("http://u:p@h failed", hint="try http://u:p@h/x")
    assert str(error) == "http://***@h failed (hint: try http://***@h/x)"
    assert error.args == ("http://***@h failed",)
