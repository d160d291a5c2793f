"""Series with the labels of a Helm release."""

from typing import Any

from tests.field.site import FREE, list_lines
from tests.field.situation import Situation

LABELS: Any = {
    "app_kubernetes_io_component": "dcgm-exporter",
    "app_kubernetes_io_instance": "dcgm-gpu-exporter",
    "app_kubernetes_io_managed_by": "Helm",
    "helm_sh_chart": "dcgm-exporter-3.4.2",
    "instance": "172.16.140.27:9400",
    "job": "kubernetes-service-endpoints",
    "namespace": "gpu-exporter",
    "service": "dcgm-gpu-exporter",
    "pod": "dcgm-gpu-exporter-dcgm-exporter-x2x4z",
}

SITUATION = Situation(
    kind="F",
    lines=list_lines("GPU-0", "k8s-gpu1", values=FREE, **LABELS),
    hours={"node,state": {"k8s-gpu1,free": 6.0}},
)
