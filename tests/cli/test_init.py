"""`fallow init` writes a settings file that loads, and says what its sources have."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from fallow.settings import load
from runtime.cli.init import FirstAnswers, write_settings

Fallow = Callable[..., Any]
CLOSED = "http://127.0.0.1:1"


def test_the_file_has_what_the_options_say(fallow: Fallow, tmp_path: Path) -> None:
    words = ("init", "--prometheus", CLOSED, "--cluster", "east", "--usd-per-gpu-hour", "2.5")
    ran = fallow(*words)
    assert (ran.code, (tmp_path / "fallow.yaml").exists()) == (75, False)
    assert "is not written" in ran.err
    ran = fallow(*words, "--force")
    settings = load(file=tmp_path / "fallow.yaml", environ={}).settings
    assert (settings.cluster, settings.prometheus.url) == ("east", CLOSED)
    assert str(settings.prices.usd_per_gpu_hour) == "2.5"
    assert not settings.kubernetes.enabled
    assert ran.code == 75, ran.err
    assert "away" in ran.out
    assert "less exact until mended: server" in ran.err


def test_a_file_is_replaced_only_with_force(fallow: Fallow, tmp_path: Path) -> None:
    (tmp_path / "fallow.yaml").write_text("cluster: [mine\n")
    ran = fallow("init", "--prometheus", CLOSED)
    assert ran.code == 2
    assert "--force" in ran.err
    assert (tmp_path / "fallow.yaml").read_text() == "cluster: [mine\n"
    fallow("init", "--prometheus", CLOSED, "--force")
    assert load(file=tmp_path / "fallow.yaml", environ={}).settings.prometheus.url == CLOSED


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--usd-per-gpu-hour", "abc"], "(from --usd-per-gpu-hour)"),
        (["--usd-per-gpu-hour", "-1"], "(from --usd-per-gpu-hour)"),
        (["--prometheus", "prometheus:9090"], "prometheus:9090"),
        (["--cluster", "a\nb"], "cluster"),
    ],
)
def test_a_wrong_answer_writes_no_file(
    fallow: Fallow, tmp_path: Path, words: list[str], text: str
) -> None:
    ran = fallow("init", *words)
    assert (ran.code, text in ran.err) == (2, True), ran.err
    assert not (tmp_path / "fallow.yaml").exists()


def test_a_place_that_cannot_be_written_is_named(fallow: Fallow) -> None:
    ran = fallow("init", "nowhere/fallow.yaml", "--force", "--prometheus", CLOSED)
    assert ran.code == 2
    assert "fallow: nowhere/fallow.yaml cannot be written: " in ran.err
    ran = fallow("init", ".", "--force", "--prometheus", CLOSED)
    assert (ran.code, "hint: name the file: fallow init fallow.yaml" in ran.err) == (2, True)


def test_without_a_source_it_says_so(fallow: Fallow, tmp_path: Path) -> None:
    ran = fallow("init")
    assert ran.code == 1
    assert "no source is configured" in ran.out
    assert not (tmp_path / "fallow.yaml").exists()


def test_a_terminal_prompts_for_what_no_option_says(
    fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = {"cluster": "west", "Prometheus": CLOSED, "USD": "3"}

    def prompt(question: str, **_more: object) -> str:
        return next(text for word, text in answers.items() if word in question)

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "prompt", prompt)
    monkeypatch.setattr(typer, "confirm", lambda *_words, **_more: False)
    fallow("init", "--force")
    settings = load(file=tmp_path / "fallow.yaml", environ={}).settings
    assert (settings.cluster, settings.prometheus.url) == ("west", CLOSED)
    assert str(settings.prices.usd_per_gpu_hour) == "3"


@given(
    cluster=st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1),
    context=st.none() | st.text(st.characters(codec="ascii", exclude_categories=["C"])),
)
def test_every_name_is_read_back_as_it_was_given(
    tmp_path_factory: pytest.TempPathFactory, cluster: str, context: str | None
) -> None:
    file = tmp_path_factory.mktemp("named") / "fallow.yaml"
    file.write_text(write_settings(FirstAnswers(cluster, "", context, "")))
    settings = load(file=file, environ={}).settings
    assert settings.cluster == cluster
    assert settings.kubernetes.enabled == (context is not None)
    assert settings.kubernetes.context == (context or "")
