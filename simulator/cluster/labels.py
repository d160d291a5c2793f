"""Build the labels of a node: the cloud's, the pool manager's, and GPU feature discovery's."""

from collections.abc import Mapping

from fallow.gpu_models import read_gpu_models
from simulator.cluster.pools import PoolSpec

MIB_PER_GIB = 1024
COMPUTE = {
    "Volta": "7.0",
    "Turing": "7.5",
    "Ampere": "8.0",
    "Ada": "8.9",
    "Hopper": "9.0",
    "Blackwell": "10.0",
}


def build_labels(name: str, pool: PoolSpec, extended: Mapping[str, int]) -> dict[str, str]:
    """Return all labels of one node; `extended` are the resources that its device plugin offers."""
    return {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": pool.instance_type,
        "topology.kubernetes.io/region": pool.region,
        "topology.kubernetes.io/zone": pool.zone,
        **_build_managed(pool),
        **_build_discovered(pool, extended),
    }


def _build_managed(pool: PoolSpec) -> dict[str, str]:
    """Return the labels of the pool manager (as cloud providers write them)."""
    spot = pool.capacity_type == "spot"
    family, _, size = pool.instance_type.partition(".")
    match pool.manager:
        case "karpenter":
            return {
                "karpenter.sh/nodepool": pool.name,
                "karpenter.sh/capacity-type": pool.capacity_type,
                "karpenter.k8s.aws/instance-family": family,
                "karpenter.k8s.aws/instance-size": size,
                "karpenter.k8s.aws/instance-gpu-manufacturer": "nvidia",
                "karpenter.k8s.aws/instance-gpu-name": pool.gpu_model.partition("-")[0].lower(),
                "karpenter.k8s.aws/instance-gpu-count": str(pool.gpu_count),
            }
        case "eks":
            return {
                "eks.amazonaws.com/nodegroup": pool.name,
                "eks.amazonaws.com/capacityType": "SPOT" if spot else "ON_DEMAND",
            }
        case "gke":
            return {
                "cloud.google.com/gke-nodepool": pool.name,
                "cloud.google.com/gke-provisioning": "spot" if spot else "standard",
                "cloud.google.com/gke-accelerator": pool.product.lower(),
                **({"cloud.google.com/gke-spot": "true"} if spot else {}),
            }
        case "aks":
            return {
                "kubernetes.azure.com/agentpool": pool.name,
                "kubernetes.azure.com/accelerator": "nvidia",
                **({"kubernetes.azure.com/scalesetpriority": "spot"} if spot else {}),
            }
        case _:
            return {}


def _build_discovered(pool: PoolSpec, extended: Mapping[str, int]) -> dict[str, str]:
    """Return the labels of GPU feature discovery."""
    facts = next(m for m in read_gpu_models() if m.gpu_model == pool.gpu_model)
    major, _, minor = COMPUTE.get(facts.arch, "8.0").partition(".")
    single = pool.mig_strategy == "single"
    product, count = pool.product, pool.gpu_count
    if single:
        product += f"-MIG-{_format_profile(pool)}"
        count = extended["nvidia.com/gpu"]
    if pool.replicas > 1:
        product += "-SHARED"
    discovered = {
        "nvidia.com/gpu.present": "true",
        "nvidia.com/gpu.product": product,
        "nvidia.com/gpu.count": str(count),
        "nvidia.com/gpu.memory": str(int(facts.memory_gib * MIB_PER_GIB)),
        "nvidia.com/gpu.replicas": str(pool.replicas),
        "nvidia.com/gpu.sharing-strategy": "time-slicing" if pool.replicas > 1 else "none",
        "nvidia.com/gpu.family": facts.arch.lower(),
        "nvidia.com/gpu.compute.major": major,
        "nvidia.com/gpu.compute.minor": minor,
        "nvidia.com/cuda.driver-version.full": "580.95.05",
        "nvidia.com/mig.capable": "true" if facts.mig_slices else "false",
        "nvidia.com/mig.strategy": pool.mig_strategy or "none",
    }
    for resource, number in extended.items():
        profile = resource.removeprefix("nvidia.com/mig-")
        if profile != resource:
            discovered[f"{resource}.count"] = str(number)
            discovered[f"{resource}.product"] = f"{pool.product}-MIG-{profile}"
            discovered[f"{resource}.replicas"] = "1"
    return discovered


def _format_profile(pool: PoolSpec) -> str:
    return pool.mig.partition(";")[0].partition("x")[2]
