"""Compaction after compaction leaves every row."""

from tests.field.site import Site, build_node, build_pod, list_lines


def test_compactions_leave_every_row(site: Site) -> None:
    site.import_objects(build_node("a"), build_pod("train", "a", gpus=2))
    for k in (0, 1):
        site.import_lines(*list_lines(f"GPU-{k}", "a", gpu=k, pod="train", namespace="ml"))
    for _ in range(2):
        assert site.run("warehouse", "compact").code == 0
    assert site.query("select count(*) as n from sample") == [{"n": 144}]
    assert site.run("warehouse", "verify").code == 0
