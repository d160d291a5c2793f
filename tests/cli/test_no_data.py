"""A window, a cluster or a team without data: one answer of every command that takes them."""

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.core import TyperGroup

from runtime.cli import run
from runtime.cli.app import build_whole
from tests.cli.conftest import ROOT, Fallow, Ran
from tests.demo_homes import copy_demo

WINDOW = "2020-01-01/2020-01-08"
OF_WINDOW = (
    "analyze idle", "backtest idle-notebooks --dry-run", "baseline save x", "baseline compare kept",
    "chargeback", "doctor", "incidents", "report finance -o md", "saved", "spend",
    "what-if --pool H100=64",
)  # fmt: skip
OF_CLUSTER = (
    *OF_WINDOW, "budget", "explain 0", "forecast", "plan", "queue", "saved --cases",
    "warehouse query 'SELECT 1'", "why-not night-1", "why-pending tune",
)  # fmt: skip
OF_TEAM = ("chargeback", "forecast", "report team -o md", "spend", "spend --share-unallocated")
OF_A_SOURCE = {"demo", "import prometheus", "scan"}
"""They read no warehouse: what a Prometheus lacks is said in other tests."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the home of a small demo with its policies and a baseline."""
    folder = tmp_path_factory.mktemp("no-data")
    home = copy_demo(tmp_path_factory, folder / "home", days=1, gpus=24, seed=3)
    shutil.copytree(ROOT / "policies", home / "policies", dirs_exist_ok=True)
    assert run(["baseline", "save", "kept", "--home", str(home)]) == 0
    return home


def list_commands(group: TyperGroup, *before: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each command's words and its options."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from list_commands(command, *before, name)
        else:
            yield " ".join((*before, name)), {o for p in command.params for o in p.opts}


def check(ran: Ran, message: str, hint: str) -> None:
    lines = ran.err.splitlines()
    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert len(lines) == 2, ran.err
    assert lines[0].startswith(f"fallow: {message}")
    assert lines[1].startswith(f"hint: {hint}")


@pytest.mark.parametrize(
    ("option", "table"), [("--window", OF_WINDOW), ("--team", OF_TEAM)], ids=["window", "team"]
)
def test_every_command_with_the_option_is_in_the_table(option: str, table: tuple[str, ...]) -> None:
    names = {name for name, options in list_commands(build_whole()) if option in options}
    assert {n for n in names - OF_A_SOURCE if not any(t.startswith(n) for t in table)} == set()


@pytest.mark.parametrize("words", OF_WINDOW)
def test_a_window_without_data(fallow: Fallow, home: Path, words: str) -> None:
    command = [*shlex.split(words), "--home", str(home)]
    ran = fallow(*command, "--window", WINDOW)
    message = "no data from 2020-01-01 00:00 to 2020-01-08 00:00 UTC; data are from 20"
    check(ran, message, "their last days: --window 20")
    if words in ("spend", "saved", "incidents"):
        again = fallow(*command, *ran.err.split("their last days: ")[1].split())
        assert again.code == 0, again.err


@pytest.mark.parametrize("words", [words for words in OF_CLUSTER if words != "doctor"])
def test_a_cluster_without_data(fallow: Fallow, home: Path, words: str) -> None:
    ran = fallow(*shlex.split(words), "--home", home, "--cluster", "nowhere")
    check(ran, "no data of cluster 'nowhere'", "clusters: demo")


def test_doctor_checks_a_cluster_without_data_by_its_settings_alone(
    fallow: Fallow, home: Path
) -> None:
    words = ("doctor", "--home", home, "-o", "csv", "--cluster")
    there, ran = fallow(*words, "demo"), fallow(*words, "nowhere")
    assert "rows,warn,no data of cluster 'nowhere'" in ran.out
    assert "priced," in there.out
    assert "priced," not in ran.out


@pytest.mark.parametrize("words", OF_TEAM)
def test_a_team_without_data(fallow: Fallow, home: Path, words: str) -> None:
    ran = fallow(*shlex.split(words), "--home", home, "--team", "nobody")
    check(ran, "no team 'nobody' held a GPU in this window", "teams: ")


@pytest.mark.parametrize(
    "words",
    ["explain", "why-not", "why-pending", "incidents", "undo", "approve", "backtest",
     "spend --team", "forecast --by", "spend --window", "init --cluster", "init --prometheus"],
)  # fmt: skip
@pytest.mark.parametrize("text", ["", " "], ids=["empty", "blank"])
def test_an_empty_text_is_no_answer(fallow: Fallow, tmp_path: Path, words: str, text: str) -> None:
    ran = fallow(*words.split(), text)
    command, *option = words.split()
    name = option[0] if option else ""
    assert (ran.code, ran.out) == (2, "")
    assert f"{name} is empty\nhint: " in ran.err
    assert f": fallow {command} --help" in ran.err
    assert not (tmp_path / "fallow.yaml").exists()
