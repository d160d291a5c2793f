"""Load the engine's extensions, signed: from installed packages, else from its own repository.

The packages hold the files that DuckDB's repository serves, so the engine's signature check stays
on; nothing is copied, so a read-only root file system will do.
"""

from importlib.resources import files
from pathlib import Path

import duckdb

from fallow.errors import WarehouseError


def load(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """Load one extension such as `ducklake` or `sqlite_scanner`.

    Raises:
        WarehouseError: it is neither packaged nor reachable; the hint says what to install.
    """
    packaged = _packaged(name)
    try:
        if packaged is not None:
            connection.load_extension(str(packaged))
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


def _packaged(name: str) -> Path | None:
    try:
        root = files(f"duckdb_extension_{name}")
    except ModuleNotFoundError:
        return None
    inside = ("extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
    path = Path(str(root)).joinpath(*inside)
    return path if path.is_file() else None
