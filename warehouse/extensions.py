"""Load the engine's signed extensions: from installed packages, else from DuckDB's repository.

The packages hold the files that DuckDB's repository serves, so the engine's signature check stays
on. Nothing is copied, so a read-only root file system is enough. The engine takes 0.13 s to hash a
file of 34 MB: a process has each file checked once, and again when the file changed.
"""

from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from pathlib import Path

import duckdb

from fallow.errors import WarehouseError

_checked: dict[Path, tuple[int, int, int]] = {}
"""Files whose signature the engine accepted in this process: inode, size, change time."""


def build_config(names: Iterable[str]) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of an engine that is to load these extensions.

    The engine checks signatures, unless this process has had all of these files checked before.
    """
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False
    }
    if all((path := _find_packaged(n)) and _checked.get(path) == _stat_file(path) for n in names):
        config["allow_unsigned_extensions"] = True
    return config


def load_extension(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load one extension such as `ducklake` or `sqlite_scanner`.

    Raises:
        WarehouseError: no package has it and DuckDB's repository is not reachable; the hint names
            what to install.
    """
    packaged = _find_packaged(name)
    try:
        if packaged is not None:
            state = _stat_file(packaged)
            connection.load_extension(str(packaged))
            _checked[packaged] = state
            return
        connection.install_extension(name)
        connection.load_extension(name)
    except duckdb.Error as error:
        package = f"duckdb-extension-{name.replace('_', '-')}=={duckdb.__version__}"
        reason = str(error).splitlines()[0]
        raise WarehouseError(
            f"the engine's extension {name!r} cannot be loaded: {reason}",
            hint=f"pip install {package}",
        ) from error


def is_packaged(name: str) -> bool:
    """Whether an installed package has the extension for this engine's version."""
    return _find_packaged(name) is not None


@cache
def _find_packaged(name: str) -> Path | None:
    try:
        root = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return None
    inside = ("extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
    path = Path(str(root)).joinpath(*inside)
    return path if path.is_file() else None


def _stat_file(path: Path) -> tuple[int, int, int]:
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns
