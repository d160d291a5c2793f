"""Cut a node's boards again: cordon, ask mig-manager for another layout, let pods come back.

Only nodes without GPU pods and without processes: mig-manager drains no workload, it resets the
board under it. The node lets pods in again once mig-manager says `success`.
"""

from typing import ClassVar

import msgspec

from actions.cluster.members import gpus
from actions.cluster.objects import deep, labels, name, target
from actions.nodes.recycling import CORDON, pods_on, read
from actions.reclaim.writes import Writes, field
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

CONFIG = "/metadata/labels/nvidia.com~1mig.config"
STATE = "/metadata/labels/nvidia.com~1mig.config.state"


class MigExecutor:
    """Set the label `nvidia.com/mig.config` of an empty node."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Node"})
    capabilities: ClassVar[frozenset[str]] = frozenset({"mig"})
    verbs: ClassVar[frozenset[str]] = frozenset({"cut-again"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "nodes", ("get", "patch")),
        Right("", "pods", ("get", "list")),
    )

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the cordon, the label, and the uncordon that waits for `success`.

        Raises:
            RefusedError: no layout is named, the node has it, is cordoned, holds GPU pods, or the
                evidence does not say that no process is on its devices.
            TemporaryError: the API does not answer.
        """
        node, path = read(decision, cluster)
        told = target(node, cluster.name, "Node", "v1")
        wanted = decision.parameters.get("mig_config")
        if not isinstance(wanted, str) or not wanted:
            raise RefusedError(
                f"Node/{told.name}: no layout is named",
                hint="name one of mig-parted's configurations in the policy's rung: mig_config",
            )
        if labels(node).get("nvidia.com/mig.config") == wanted:
            raise RefusedError(f"Node/{told.name} is asked to be {wanted} already")
        if deep(node, "spec", "unschedulable"):
            raise RefusedError(f"Node/{told.name} is cordoned by somebody already")
        if holding := [name(p) for p in pods_on(told.name, cluster) if gpus(p)]:
            raise RefusedError(f"Node/{told.name} has GPU pods: {', '.join(sorted(holding)[:3])}")
        if decision.parameters.get("processes") != 0:
            raise RefusedError(f"Node/{told.name}: whether processes use its devices is not known")
        cordon = field(node, told, path, CORDON, value=True)
        label = field(node, told, path, CONFIG, wanted)
        again = _again(cordon, wanted)
        return Intent(
            target=told,
            capability="mig",
            changes=(cordon.change, label.change, again),
            undo=(label.undo,),
            notes=("pods are let in again when mig-manager says success; until then it waits",),
        )


def _again(cordon: Writes, wanted: str) -> Change:
    """Return the uncordon, which waits until the boards are cut."""
    return msgspec.structs.replace(cordon.undo, when={CONFIG: wanted, STATE: "success"})
