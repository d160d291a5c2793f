"""A label that is no UTF-8 costs its own line, not the target."""

from typing import Any

from tests.field.site import Site, build_node, build_pod, list_lines


def test_a_label_that_is_no_utf8_costs_its_own_lines_only(site: Site) -> None:
    site.import_objects(build_node("a"), build_pod("train", "a", gpus=2))
    pod: dict[str, Any] = {"pod": "train", "namespace": "ml", "container": "c"}
    honest = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, **pod)]
    odd = list_lines("GPU-9", "b", pod="\udcfftest-api", namespace="ml", container="c")
    answer = site.import_lines(*honest, *odd)
    assert answer.code == 0, answer.err
    assert site.sum_hours("state")["productive"] == 12.0
    assert site.query("select rejected from scrape where rejected > 0") == [{"rejected": len(odd)}]
