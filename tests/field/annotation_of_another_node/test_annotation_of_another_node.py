"""A pod's annotation takes no device of another node."""

from tests.field.site import Site, build_node, build_pod, list_lines

CLAIM = "GPU-0,NVIDIA,40960,100:GPU-1,NVIDIA,40960,100:;"


def test_a_device_of_another_node_is_not_taken(site: Site) -> None:
    site.import_objects(
        build_node("a"),
        build_node("b", 0),
        build_pod("train", "a", gpus=2),
        build_pod(
            "other", "b", namespace="x", annotations={"hami.io/vgpu-devices-allocated": CLAIM}
        ),
    )
    # The exporter names no pod: what is known of owners, the inventory knows.
    lines = [line for k in (0, 1) for line in list_lines(f"GPU-{k}", "a", gpu=k)]
    assert site.import_lines(*lines).code == 0
    hours = site.sum_hours("namespace")
    assert hours.get("ml") == 12.0, hours
    assert hours.get("x", 0.0) == 0.0, hours
