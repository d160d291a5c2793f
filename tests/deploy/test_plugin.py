"""`kubectl fallow` is Fallow under kubectl's name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent
SCRIPT = BIN / "kubectl-fallow"


def ran(*words: str | Path, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(home)}
    return subprocess.run(
        list(map(str, words)), capture_output=True, text=True, check=False, env=environ
    )


@pytest.fixture
def kubectl() -> str:
    found = shutil.which("kubectl")
    if found is None:
        pytest.skip("no kubectl here (Debian: apt-get install kubernetes-client)")
    return found


def test_kubectl_finds_the_plugin(kubectl: str, tmp_path: Path) -> None:
    listed = ran(kubectl, "plugin", "list", home=tmp_path)
    assert str(SCRIPT) in listed.stdout


def test_help_names_what_people_type(kubectl: str, tmp_path: Path) -> None:
    shown = ran(kubectl, "fallow", "spend", "--help", home=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.split("Usage: ")[1].startswith("kubectl fallow spend ")
    direct = ran(BIN / "fallow", "spend", "--help", home=tmp_path)
    assert direct.stdout.split("Usage: ")[1].startswith("fallow spend ")


def test_a_wrong_word_has_the_exit_code_and_the_hint_of_fallow(
    kubectl: str, tmp_path: Path
) -> None:
    shown = ran(kubectl, "fallow", "spendings", home=tmp_path)
    assert shown.returncode == 2
    assert "see kubectl fallow --help" in shown.stderr
