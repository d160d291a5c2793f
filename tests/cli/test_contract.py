"""What every command keeps to: exit codes, one-line errors, data apart from talk."""

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Never

import pytest

from fallow import __version__, errors
from fallow.settings import Settings
from runtime.cli import app as application
from runtime.cli import config, run
from runtime.cli.app import EPILOG
from warehouse.lake import Warehouse

Fallow = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]


def test_help_starts_in_a_blink_and_loads_nothing_heavy(process: Fallow) -> None:
    heavy = "duckdb pyarrow polars numpy pandas pydantic rich structlog kubernetes boto3 aiohttp"
    code = (
        "import sys\nfrom runtime.cli import run\nrun(['--help'])\n"
        f"loaded = [m for m in '{heavy}'.split() if m in sys.modules]\n"
        "sys.exit(f'--help loads {loaded}' if loaded else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr
    # Processor time, not the wall's: what else the machine does is not what this measures.
    seconds = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert process("--help").code == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.4


def test_a_command_that_reads_the_warehouse_does_not_load_pandas(settings: Settings) -> None:
    Warehouse.open(settings, write=True).close()
    code = (
        "import sys\nfrom runtime.cli import run\n"
        f"code = run(['spend', '--home', {str(settings.home)!r}])\n"
        "sys.exit('pandas' if 'pandas' in sys.modules else code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.FallowError, 1),
        (errors.UsageError, 2),
        (errors.SettingsError, 2),
        (errors.RefusedError, 3),
        (errors.SourceError, 1),
        (errors.AuthError, 1),
        (errors.WarehouseError, 1),
        (errors.TemporaryError, 75),
        (KeyboardInterrupt, 130),
        (ZeroDivisionError, 1),
    ],
)
def test_an_error_is_one_line_and_the_code_of_its_kind(
    fallow: Fallow, monkeypatch: pytest.MonkeyPatch, kind: type[BaseException], code: int
) -> None:
    def fail(_run: object) -> Never:
        raise kind("it\nbroke")

    monkeypatch.setattr(config, "show", fail)
    ran = fallow("config", "show")
    assert ran.code == code
    assert ran.out == ""
    first, *rest = ran.err.splitlines()
    assert first.startswith("fallow: ")
    assert "Traceback" not in ran.err
    assert all(line.startswith("hint: ") for line in rest)


def test_every_exit_code_is_in_the_help(fallow: Fallow) -> None:
    found = [k for k in vars(errors).values() if isinstance(k, type)]
    codes = {k.exit_code for k in found if issubclass(k, errors.FallowError)}
    codes |= {0, errors.FINDINGS_EXIST}
    for code in codes:
        assert f"{code} " in EPILOG
    assert "stdout is data" in " ".join(fallow("--help").out.split())


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["nope"], "No such command 'nope'"),
        (["demo", "--days", "many"], "--days"),
        (["demo", "--days", "0"], "--days"),
        (["analyze", "idle", "--treshold", "1"], "--threshold"),
        (["import", "samples"], "Missing"),
        (["config", "show", "-o", "yaml"], "yaml"),
        (["config", "show", "--config", "absent.yaml"], "absent.yaml"),
        (["spend", "--by", "planet"], "namespace"),
        (["spend", "--view", "sunny"], "loaded"),
        (["collect"], "--once"),
        (["import", "samples", "x.csv", "--columns", "ts", "--interval", "57s"], "ours=theirs"),
        (["analyze", "nope"], "idle"),
        (["analyze", "idle", "nope"], "no analyzer called 'nope'"),
        (["analyze", "--top", "-1"], "--top"),
        (["baseline", "show", "nope"], "stored: none"),
        (["baseline", "../nope"], "no name for a baseline"),
        (["analyze", "idle", "--evidence", "strong"], "confirmed"),
        (["analyze", "idle", "--min-duration", "soon"], "not a duration"),
        (["analyze", "idle", "--threshold", "7"], "idle.threshold"),
    ],
)
def test_a_wrong_command_line_is_refused_with_2_and_what_is_legal(
    fallow: Fallow, words: list[str], complaint: str
) -> None:
    ran = fallow(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert complaint in ran.err
    assert 1 <= len(ran.err.splitlines()) <= 2


def test_debug_shows_where_it_broke(process: Fallow) -> None:
    plain = process("config", "show", "--config", "absent.yaml")
    assert "Traceback" not in plain.err
    for result in (
        process("config", "show", "--config", "absent.yaml", "--debug"),
        process("config", "show", "--config", "absent.yaml", FALLOW_DEBUG="1"),
    ):
        assert "Traceback" in result.err


def test_global_options_stand_before_or_after_the_command(fallow: Fallow) -> None:
    for words in (
        ["--cluster", "a", "-o", "json", "config", "show"],
        ["config", "show", "--cluster", "a", "-o", "json"],
        ["--cluster", "b", "-o", "md", "config", "show", "--cluster", "a", "-o", "json"],
    ):
        ran = fallow(*words)
        assert ran.code == 0, ran.err
        shown = {row["setting"]: row for row in json.loads(ran.out)["settings"]}
        assert shown["cluster"]["value"] == "a"
        assert shown["cluster"]["from"] == "--cluster"


def test_config_show_says_where_each_value_came_from(
    fallow: Fallow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.joinpath("fallow.yaml").write_text(
        "idle: {threshold: 0.02}\nprometheus: {password: secret-in-file}\n"
    )
    monkeypatch.setenv("FALLOW_IDLE__MIN_DURATION", "45m")
    ran = fallow("config", "show", "-o", "json")
    shown = {row["setting"]: row for row in json.loads(ran.out)["settings"]}
    assert shown["idle.threshold"] == {
        "setting": "idle.threshold", "value": 0.02, "from": "fallow.yaml"
    }  # fmt: skip
    assert shown["idle.min_duration"]["value"] == "45m"
    assert shown["idle.min_duration"]["from"] == "FALLOW_IDLE__MIN_DURATION"
    assert shown["idle.exit_threshold"]["from"] == "default"
    assert "secret-in-file" not in ran.out


def test_an_unknown_key_is_refused_with_the_legal_ones(fallow: Fallow, tmp_path: Path) -> None:
    tmp_path.joinpath("fallow.yaml").write_text("idle: {treshold: 1}\n")
    ran = fallow("config", "show")
    assert ran.code == 2
    assert "idle.treshold" in ran.err
    assert "threshold" in ran.err.splitlines()[1]


def test_every_command_has_help_and_every_group_lists_its_commands(fallow: Fallow) -> None:
    root = application.build_whole()

    def walk(group: Any, words: list[str]) -> None:
        for name, command in group.commands.items():
            ran = fallow(*words, name, "--help")
            assert ran.code == 0
            assert command.help or command.commands
            if hasattr(command, "commands"):
                walk(command, [*words, name])
            else:
                assert ("--output" in ran.out) is ([*words, name] != ["mcp"])  # it speaks MCP
                assert "--home" in ran.out

    walk(root, [])


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom runtime.cli import run\n"
        "read, write = os.pipe(); os.close(read); os.dup2(write, 1)\n"
        "sys.exit(run(['config', 'show']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_version_is_told(fallow: Fallow) -> None:
    assert fallow("--version").out == f"fallow {__version__}\n"


def test_labels_of_strangers_cannot_drive_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_run: object) -> Never:
        raise errors.SourceError("pod \x1b[2Jgone\r\n\x07")

    monkeypatch.setattr(config, "show", fail)
    assert run(["config", "show"]) == 1
    answer = capsys.readouterr().err
    assert answer.isascii()
    assert all(c.isprintable() or c == "\n" for c in answer)


def test_the_table_of_commands_says_what_the_commands_say() -> None:
    """`fallow --help` reads the table alone, so that it loads no command."""
    entries = application.read_commands()
    root = application.build_whole()
    assert {name: entry.summary for name, entry in entries.items()} == {
        name: command.get_short_help_str(1000).rstrip() for name, command in root.commands.items()
    }
    modules = {path.stem for path in Path(application.__file__).parent.glob("*.py")}
    others = {"__init__", "app", "clusters", "logs", "options", "query_limits"}
    assert {entry.module for entry in entries.values()} == modules - others


def test_a_length_of_time_has_one_name_in_every_command() -> None:
    options = {option for command in _walk(application.build_whole()) for option in command}
    assert any("--window" in names for names in options)
    assert not [names for names in options if "--since" in names and "--window" not in names]


def _walk(group: Any) -> list[list[tuple[str, ...]]]:
    """Return the names of each option of each command of a group, as a list per command."""
    own = [[tuple(parameter.opts) for parameter in group.params]]
    return own + [
        part for command in getattr(group, "commands", {}).values() for part in _walk(command)
    ]
