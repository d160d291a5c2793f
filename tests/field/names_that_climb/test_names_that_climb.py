"""A restore writes nothing outside its home."""

import json
from pathlib import Path

import pytest

from tests.field.site import Site, list_lines


@pytest.mark.parametrize("name", ["../../escaped", "/tmp/fallow-escaped", "data/../../../escaped"])
def test_a_changed_manifest_writes_nothing_outside(site: Site, name: str) -> None:
    assert site.import_lines(*list_lines("GPU-0", "a")).code == 0
    backup = site.folder / "backup"
    assert site.run("backup", backup).code == 0
    (manifest,) = backup.glob("*manifest*")
    text = json.loads(manifest.read_text())
    changed = _rename_first(text, name)
    assert changed, text
    manifest.write_text(json.dumps(text))
    before = _list_files(site.folder)
    answer = site.fallow("restore", backup, "--home", site.folder / "deep" / "er" / "new")
    assert answer.code != 0
    new = {path for path in _list_files(site.folder) - before if "deep" not in path.parts}
    assert not new
    assert not Path("/tmp/fallow-escaped").exists()


def _rename_first(value: object, name: str) -> bool:
    """Give the first file of a manifest another name."""
    if isinstance(value, dict):
        if isinstance(value.get("name"), str) and "sha256" in value:
            value["name"] = name
            return True
        return any(_rename_first(part, name) for part in value.values())
    return isinstance(value, list) and any(_rename_first(part, name) for part in value)


def _list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
