"""A catalog and a stranger's file in the data folder outlive compactions."""

from pathlib import Path

from tests.field.site import Site, list_lines


def test_a_catalog_in_the_data_folder_outlives_compaction(site: Site) -> None:
    settings = site.folder / "fallow.yaml"
    settings.write_text(f"warehouse:\n  data: {site.home}\n")
    assert site.import_lines(*list_lines("GPU-0", "a")).code == 0
    (site.home / "notes.parquet").write_bytes(b"somebody's own")
    catalog = _find_catalog(site.home)
    for _ in range(2):
        assert site.run("warehouse", "compact").code == 0
    assert catalog.exists()
    assert (site.home / "notes.parquet").read_bytes() == b"somebody's own"
    assert site.query("select count(*) as n from sample") == [{"n": 72}]


def _find_catalog(home: Path) -> Path:
    return next(home.glob("catalog*"))
