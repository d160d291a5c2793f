"""Ten shares under a name of a plugin for AWS."""

from tests.field.site import build_node, label_instance, list_lines
from tests.field.situation import Situation

LABELS = label_instance("g4dn.xlarge", product="Tesla-T4", count="1")

SITUATION = Situation(
    kind="F",
    dumps=[[build_node("a", None, labels=LABELS, resources={"k8s.amazonaws.com/vgpu": "10"})]],
    lines=list_lines("GPU-0", "a", modelName="Tesla T4"),
    hours={"node": {"a": 6.0}},
    nodes={"a": {"gpu_count": 1}},
    doctor=["k8s.amazonaws.com/vgpu (0 pods, 1 nodes, 10 GPUs"],
)
