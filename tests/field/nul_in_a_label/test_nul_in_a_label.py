"""A NUL in one device's label costs that device's owner, no row and no accounting pass."""

from typing import Any

from tests.field.site import Site, build_node, build_pod, list_lines


def test_a_nul_in_a_label_costs_its_own_device_s_owner_only(site: Site) -> None:
    site.import_objects(build_node("a"), build_pod("train", "a", gpus=2))
    pod: dict[str, Any] = {"pod": "train", "namespace": "ml", "container": "c"}
    honest = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k, **pod)]
    odd = list_lines("GPU-9", "b", pod="x", namespace="m\0l", container="c")
    answer = site.import_lines(*honest, *odd)
    assert answer.code == 0, answer.err
    assert site.sum_hours("namespace")["ml"] == 12.0
    assert site.query("select distinct namespace from sample where device = 'GPU-9'") == [
        {"namespace": "(unknown)"}
    ]
    doctor = site.run("doctor")
    assert "namespace" in doctor.out
    assert "rejected" in doctor.out
