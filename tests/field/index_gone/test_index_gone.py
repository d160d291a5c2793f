"""A catalog that is gone never makes its data files orphans."""

from pathlib import Path

from tests.field.site import Site, list_lines


def test_data_files_outlive_their_catalog(site: Site) -> None:
    assert site.import_lines(*list_lines("GPU-0", "a")).code == 0
    before = _list_data(site.home)
    assert before
    for path in site.home.glob("catalog*"):
        path.unlink()
    answers = [site.import_lines(*list_lines("GPU-1", "a")), site.run("warehouse", "compact")]
    assert _list_data(site.home) >= before
    assert all(answer.code == 2 for answer in answers), answers
    assert all("restore" in answer.err for answer in answers), answers


def _list_data(home: Path) -> set[Path]:
    return set(home.rglob("*.parquet"))
