"""An empty entry before the device hides no device."""

from tests.field.site import Site, build_node, build_pod

UUID = "GPU-9b9030a3-d81f-7d9f-5d2b-fd98cdc57b2d"


def test_an_empty_entry_hides_no_device(site: Site) -> None:
    node = build_node("honglou", 1)
    register = f"{UUID},10,81920,100,NVIDIA-NVIDIA H100,0,true:"
    node["metadata"]["annotations"] = {"hami.io/node-nvidia-register": register}
    pod = build_pod(
        "vllm",
        "honglou",
        gpus=1,
        annotations={
            "hami.io/bind-phase": "success",
            "hami.io/vgpu-node": "honglou",
            "hami.io/vgpu-devices-allocated": f";{UUID},NVIDIA,6144,30:;",
        },
    )
    assert site.import_objects(node, pod).code == 0
    rows = site.query("select devices from pod")
    assert UUID in str(rows)
    assert "0.3" in str(rows)
