"""An extension's signature is checked once per process, and again when its file changed."""

import shutil
from pathlib import Path

import duckdb
import pytest

from fallow.errors import WarehouseError
from warehouse import extensions

NAME = "ducklake"


def loaded() -> None:
    with duckdb.connect(config=extensions.build_config([NAME])) as connection:
        extensions.load_extension(connection, NAME)


def checks() -> bool:
    return "allow_unsigned_extensions" not in extensions.build_config([NAME])


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the packaged file that nobody has loaded yet."""
    real = extensions._find_packaged(NAME)
    assert real is not None
    copy = Path(shutil.copy(real, tmp_path / real.name))
    monkeypatch.setattr(extensions, "_find_packaged", lambda _name: copy)
    return copy


@pytest.mark.usefixtures("packaged")
def test_a_signature_is_checked_by_the_first_connection_only() -> None:
    assert checks()
    loaded()
    assert not checks()
    loaded()


def test_a_file_that_changed_is_checked_again_and_refused(packaged: Path) -> None:
    loaded()
    bytes_ = packaged.read_bytes()
    packaged.unlink()  # the engine still maps the old one
    packaged.write_bytes(bytes_[:-1] + bytes([bytes_[-1] ^ 1]))
    assert checks()
    with pytest.raises(WarehouseError, match="cannot be loaded"):
        loaded()
