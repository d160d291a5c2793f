"""`make release`: wheel and chart in dist/, the image where it can be built, else a sentence."""

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("bash", "cat", "ls", "mkdir", "rm", "tr", "touch")


def write_script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout whose uv and Helm write empty files, on a machine without builders."""
    for name in ("pyproject.toml", "CHANGELOG.md", "deploy/helm/fallow/Chart.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    for name in PROGRAMS:
        program = shutil.which(name)
        assert program is not None, name
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(program)
    uv = 'if [ "$1" = build ]; then touch dist/fallow-0.1.0-py3-none-any.whl; fi'
    write_script(tmp_path / ".venv/bin/uv", uv)
    helm = (
        f'if [ "$1" = -c ]; then touch dist/fallow-0.1.0.tgz; else exec {sys.executable} "$@"; fi'
    )
    write_script(tmp_path / ".venv/bin/python", helm)
    return tmp_path


BASE = f"python@sha256:{'0a' * 32}"


def release(checkout: Path, base: str = BASE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / ".ci" / "release"), ".venv"],
        cwd=checkout,
        env={**os.environ, "PATH": str(checkout / "bin"), "BASE": base},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_without_a_builder_the_wheel_and_the_chart_are_made_and_it_says_so(checkout: Path) -> None:
    ran = release(checkout)
    assert ran.returncode == 0, ran.stderr
    assert {path.suffix for path in (checkout / "dist").iterdir()} == {".whl", ".tgz"}
    assert "no image: neither podman nor buildah nor docker runs here" in ran.stdout


def test_a_builder_that_cannot_get_the_base_is_named(checkout: Path) -> None:
    write_script(checkout / "bin" / "podman", '[ "$1" = info ]')
    ran = release(checkout)
    assert ran.returncode == 0, ran.stderr
    assert "no image: podman cannot get the base python@sha256:0a0a" in ran.stdout


@pytest.mark.parametrize("base", ["python:3.11-slim", "python@sha256:0a", "python@sha512:0a"])
def test_a_base_without_its_digest_is_refused(checkout: Path, base: str) -> None:
    ran = release(checkout, base)
    assert ran.returncode == 2
    assert f"BASE={base} has no digest: give BASE=IMAGE@sha256:DIGEST" in ran.stderr
    assert not (checkout / "dist").exists()


def test_without_a_base_there_is_no_image_and_it_says_so(checkout: Path) -> None:
    ran = release(checkout, "")
    assert ran.returncode == 0, ran.stderr
    assert "no image: no base is named: make release BASE=IMAGE@sha256:DIGEST" in ran.stdout
    containerfile = (ROOT / "deploy/container/Containerfile").read_text(encoding="utf-8")
    assert "\nARG BASE\n" in containerfile, "no default: a tag can change under its name"


def test_a_builder_that_builds_gives_an_archive(checkout: Path) -> None:
    write_script(checkout / "bin" / "podman", 'if [ "$1" = save ]; then touch "$3"; fi')
    ran = release(checkout)
    assert ran.returncode == 0, ran.stderr
    assert (checkout / "dist" / "fallow-0.1.0.image.tar").exists()


@pytest.mark.parametrize(
    ("name", "old", "message"),
    [
        ("CHANGELOG.md", "## 0.1.0", "CHANGELOG.md has no section of it"),
        ("deploy/helm/fallow/Chart.yaml", "appVersion: 0.1.0", "appVersion of Chart.yaml is 9.9.9"),
    ],
)
def test_files_that_do_not_agree_on_the_version_end_it(
    checkout: Path, name: str, old: str, message: str
) -> None:
    path = checkout / name
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, old.replace("0.1.0", "9.9.9")), encoding="utf-8")
    ran = release(checkout)
    assert ran.returncode == 1
    assert message in ran.stderr
    assert not (checkout / "dist").exists()


def test_hooks_before_a_commit_are_local_and_are_steps_of_make_lint() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    lint = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    for hook in config["repos"][0]["hooks"]:
        command = hook["entry"].removesuffix(" --force-exclude")
        assert re.search(rf"^\t@{re.escape(command)}\b", lint, re.MULTILINE), command
