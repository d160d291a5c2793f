"""A node's large memory is never a negative figure."""

from tests.field.site import Site, build_node


def test_a_large_memory_is_right_or_absent(site: Site) -> None:
    assert site.import_objects(build_node("a", memory="10000T"), build_node("b")).code == 0
    rows = site.query("select * from node order by node")
    assert [row["node"] for row in rows] == ["a", "b"]
    figures = [value for value in rows[0].values() if isinstance(value, int | float)]
    assert all(value >= 0 for value in figures), rows[0]
