"""Prepare the home of the demo: a folder of its own that the next demo may replace."""

import os
import shutil
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

import yaml

from fallow.demo_marker import MARKER, is_demo_home
from fallow.errors import UsageError
from fallow.settings import find_default_home
from runtime.experiments.demo_plants import CLUSTER
from warehouse.lock import WriterLock

NAME = "fallow-demo"
"""Beside the folder of a user's own warehouse, never inside it."""
LOCK = "demo.lock"
DEMO_FILES = frozenset({MARKER, LOCK})
"""Removed last or never: a run that is interrupted leaves a folder that is still a demo's."""
HEAD = """\
# `fallow demo` wrote this folder: a simulated fleet, not yours. The next `fallow demo` replaces all
# of it. Commands with this folder as their home read these settings, and no other file.
"""


def locate_demo_home() -> Path:
    """Return where the demo is kept unless `--home` names another folder."""
    return find_default_home().with_name(NAME)


def check_demo_home(home: Path, own_home: Path) -> None:
    """Refuse a folder that is not a demo's, or that is the home in force of the user.

    Raises:
        UsageError: `home` has files and no marker of a demo, or is `own_home`.
    """
    hint = "leave --home out, or name a new folder"
    if is_demo_home(home):
        return
    if home.exists() and not home.is_dir():
        raise UsageError(f"--home {home} is a file, not a folder", hint=hint)
    if home.is_dir() and any(home.iterdir()):
        raise UsageError(
            f"the demo keeps its warehouse in a folder of its own: {home} has files and no "
            f"{MARKER}, so no demo wrote it",
            hint=hint,
        )
    if home.resolve() == own_home.resolve():
        raise UsageError(
            f"the demo keeps its warehouse in a folder of its own: {home} is the home of your own",
            hint=hint,
        )


@contextmanager
def replace_demo_home(home: Path, settings: Mapping[str, Any]) -> Iterator[None]:
    """Empty a folder that `check_demo_home` accepts, and write the demo's settings into it.

    The folder is locked until the end, so that two demos never write into it.

    Raises:
        TemporaryError: another demo is writing into it.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    home.chmod(0o700)
    if not is_demo_home(home):
        _write_marker(home, settings)
    lock = WriterLock(home / LOCK)
    lock.acquire()
    try:
        for path in home.iterdir():
            if path.name in DEMO_FILES:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        _write_marker(home, settings)
        yield
    finally:
        lock.release()


def list_commands(home: Path, finding: str | None) -> list[str]:
    """Return the commands that go on from the demo; they work from any folder.

    `finding`: its id; without one there is nothing to explain.
    """
    program, option = find_program(), f"--home {quote(str(home.absolute()))}"
    return [
        f"{program} dashboard {option}",
        *([f"{program} explain {finding} --cluster {CLUSTER} {option}"] if finding else []),
        f"{program} spend --by team --cluster {CLUSTER} {option}",
    ]


def list_acting_commands(home: Path) -> list[str]:
    """Return the commands that go on from a turn of the demo's actor."""
    program, option = find_program(), f"--home {quote(str(home.absolute()))}"
    words = ("actions", "analyze", "demo --continue 1h")
    return [f"{program} {command} {option}" for command in words]


def find_program() -> str:
    """Return how this installation is called: its name, or its path where PATH has another."""
    own = Path(sysconfig.get_path("scripts")) / "fallow"
    called = shutil.which("fallow")
    if called and Path(called).absolute() == own.absolute():
        return "fallow"
    return quote(str(own)) if own.exists() else "fallow"


def _write_marker(home: Path, settings: Mapping[str, Any]) -> None:
    text = HEAD + yaml.safe_dump(dict(settings), sort_keys=False)
    partial = home / f"{MARKER}.partial"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(home / MARKER)
