"""Switch workloads off as an enforcer does, by the merge patches that people write."""

from simulator.cluster.objects import build_nested_patch
from simulator.kube.server_metadata import format_time
from simulator.switches import NOTEBOOK, SERVICE, SUSPEND, Object, is_off
from simulator.world import World


def switch_off(world: World, key: tuple[str, str, str]) -> bool:
    """Stop a workload; False = it is deleted or already off."""
    kind, space, name = key
    obj = world.store.get(kind, name, space)
    if obj is None or is_off(obj):
        return False
    world.store.patch(kind, name, space, build_off_patch(kind, world.now_s), manager="fallow")
    return True


def build_off_patch(kind: str, now_s: float) -> Object:
    """Return the merge patch that stops a workload of a kind, reversibly."""
    if kind in SUSPEND:
        return build_nested_patch(True, *SUSPEND[kind])
    notes = {"Notebook": {NOTEBOOK: format_time(now_s)}, "InferenceService": {SERVICE: "true"}}
    if kind in notes:
        return {"metadata": {"annotations": notes[kind]}}
    return {"spec": {"replicas": 0}}
