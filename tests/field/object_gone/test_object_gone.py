"""A data file that is gone is named, and counts nowhere as nothing."""

from tests.field.site import Site, list_lines


def test_a_file_that_is_gone_is_named(site: Site) -> None:
    assert site.import_lines(*list_lines("GPU-0", "a")).code == 0
    victim = max(site.home.rglob("sample/**/*.parquet"), key=lambda path: path.stat().st_size)
    victim.unlink()
    verify = site.run("warehouse", "verify")
    assert verify.code == 1
    assert victim.name in verify.out + verify.err
    answer = site.run("warehouse", "query", "select avg(power_w) from sample")
    assert answer.code != 0
    assert victim.name in answer.err
