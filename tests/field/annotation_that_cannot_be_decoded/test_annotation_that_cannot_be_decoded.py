"""A pod whose allocation cannot be decoded stays in the inventory, and holds what it asked for."""

from tests.field.site import Site, build_node, build_pod, list_lines

ODD = {"a": "GPU-a1,NVIDIA,1e308,100:;", "b": "GPU-b1,NVIDIA,,:;", "c": ";;;;:::,,,"}


def test_undecodable_allocations_cost_no_other_pod(site: Site) -> None:
    objects = [build_node(name) for name in ODD]
    for name, text in ODD.items():
        claim = {"hami.io/vgpu-devices-allocated": text}
        objects += [
            build_pod(f"one-{name}", name, gpus=1),
            build_pod(f"two-{name}", name, gpus=1, annotations=claim),
        ]
    site.import_objects(*objects)
    lines = [
        line for name in ODD for k in (0, 1) for line in list_lines(f"GPU-{name}{k}", name, gpu=k)
    ]
    assert site.import_lines(*lines).code == 0
    assert site.query("select count(*) as n from pod") == [{"n": 6}]
    states = site.sum_hours("state")
    assert sum(states.values()) == 36.0
    assert "free" not in states
