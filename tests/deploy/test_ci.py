"""A step of CI that could not run fails; on a laptop, `make test` skips and says what it lacks."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("bash", "cat", "cp", "dirname", "env", "grep", "ls", "mktemp", "rm", "sed", "tail", "wc")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout without a network: its uv, and the machine's apt-get, install nothing."""
    for name in NEEDED:
        program = shutil.which(name)
        assert program is not None, name
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).symlink_to(program)
    script(tmp_path / "bin" / "id", "echo 0")
    script(tmp_path / "bin" / "apt-get", "echo 'apt-get: no network' >&2; exit 100")
    script(tmp_path / ".venv" / "bin" / "uv", "echo 'uv: no network' >&2; exit 2")
    return tmp_path


def script(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


def run(checkout: Path, step: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / ".ci" / step), *words],
        cwd=checkout,
        env={**os.environ, "PATH": str(checkout / "bin")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_servers_that_ci_cannot_install_fail_the_run(checkout: Path) -> None:
    ran = run(checkout, "test-servers", "--require")
    assert ran.returncode == 1
    assert "no network" in ran.stderr
    assert "chromium" in ran.stderr.splitlines()[-1]
    assert "could not run" in ran.stderr.splitlines()[-1]


def test_on_a_laptop_they_are_named_and_their_tests_skip(checkout: Path) -> None:
    ran = run(checkout, "test-servers")
    assert ran.returncode == 0
    assert "chromium" in ran.stderr.splitlines()[-1]
    assert "will be skipped" in ran.stderr.splitlines()[-1]


@pytest.mark.parametrize("target", ["test", "test-field"])
def test_ci_requires_them(target: str) -> None:
    words = ["make", target, "REQUIRE=1"]
    assert " ".join(words) in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    ran = subprocess.run(
        [words[0], "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert ".ci/test-servers --require" in ran.stdout


def test_a_validator_that_cannot_be_installed_fails(checkout: Path) -> None:
    ran = run(checkout, "focus-validate")
    assert (ran.returncode, "nothing was validated" in ran.stdout) == (1, True)
    assert "no network" in ran.stdout


@pytest.mark.parametrize(
    ("says", "charges", "expected"),
    [
        ("echo Validation succeeded!", 2, (0, "accepts 2 charges")),
        ("echo Validation failed!", 2, (1, "refuses the file")),
        ("echo 'ImportError: no polars' >&2; exit 1", 2, (1, "ImportError: no polars")),
        ("exit 137", 2, (1, "could not run (exit 137)")),
        ("echo Validation succeeded!", 0, (1, "no charges")),
    ],
)
def test_a_validator_that_cannot_start_fails_with_its_output(
    checkout: Path, says: str, charges: int, expected: tuple[int, str]
) -> None:
    own = checkout / ".venv-focus" / "bin"
    script(own / "focus-validator", f'[ "$1" = --help ] && exit 0\n{says}')
    script(own / "python", f"echo '{checkout}'")
    script(checkout / ".venv" / "bin" / "python", "exit 0")
    rows = "\\n".join(["header", *(["row"] * charges)])
    script(
        checkout / ".venv" / "bin" / "fallow",
        f'while [ $# -gt 0 ]; do [ "$1" = --file ] && printf \'{rows}\\n\' >"$2"; shift; done\n'
        "exit 0",
    )
    ran = run(checkout, "focus-validate")
    assert ran.returncode == expected[0], (ran.stdout, ran.stderr)
    assert expected[1] in ran.stdout


def test_a_report_that_fails_is_no_validated_file(checkout: Path) -> None:
    script(checkout / ".venv-focus" / "bin" / "focus-validator", "echo Validation succeeded!")
    script(checkout / ".venv" / "bin" / "python", "exit 0")
    script(checkout / ".venv" / "bin" / "fallow", "echo 'fallow: no ledger' >&2; exit 1")
    ran = run(checkout, "focus-validate")
    assert ran.returncode == 1
    assert "fallow: no ledger" in ran.stdout
