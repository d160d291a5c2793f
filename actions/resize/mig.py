"""Change the MIG layout of a node: cordon it, set the label for mig-manager, uncordon it.

Only nodes without GPU pods and without processes are changed: mig-manager does not drain workloads,
it resets the GPU under them. The node is schedulable again once mig-manager reports `success`.
"""

from typing import Any, ClassVar

import msgspec

from actions.cluster.allocations import CLAIMS, count_allocated_gpus
from actions.cluster.pointers import join_pointer
from actions.cluster.workload_pods import list_node_pods
from actions.nodes.recycling import CORDON, read_node
from actions.reclaim.writes import UndoableChange, set_field
from fallow.action_models import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.kube.objects import get_labels, get_path, get_uid, name, to_target
from fallow.protocols import ClusterReader, Right

LABEL, LABEL_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
CONFIG, STATE = (
    join_pointer("metadata", "labels", LABEL),
    join_pointer("metadata", "labels", LABEL_STATE),
)
POOL = "NodePool"
PENDING = "pending"
"""Labels that mig-manager itself writes while it changes the layout."""


class MigExecutor:
    """Set the label `nvidia.com/mig.config` of an empty node; of a pool, of one such node."""

    kinds: ClassVar[frozenset[str]] = frozenset({"Node", POOL})
    capabilities: ClassVar[frozenset[str]] = frozenset({"mig"})
    verbs: ClassVar[frozenset[str]] = frozenset({"cut-again"})
    rights: ClassVar[tuple[Right, ...]] = (
        Right("", "nodes", ("get", "patch")),
        Right("", "pods", ("get", "list")),
        CLAIMS,
    )

    def writes(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the cordon, the label, and the uncordon that waits for `success`.

        Raises:
            RefusedError: no layout is named, the node has it, is cordoned, holds GPU pods, or the
                evidence does not show that no process is on its devices.
            TemporaryError: the API does not answer.
        """
        if decision.subject[1] == POOL:
            return self._choose_node(decision, cluster)
        node, path = read_node(decision, cluster)
        node_target = to_target(node, cluster.name, "Node", "v1")
        layout = decision.parameters.get("mig_config")
        if not isinstance(layout, str) or not layout:
            raise RefusedError(
                f"Node/{node_target.name}: no layout is named",
                hint="name one of mig-parted's configurations in the policy's stage: mig_config",
            )
        if get_labels(node).get(LABEL) == layout:
            raise RefusedError(f"Node/{node_target.name} is asked to be {layout} already")
        if get_path(node, "spec", "unschedulable"):
            raise RefusedError(f"Node/{node_target.name} is cordoned by somebody already")
        pods = list_node_pods(node_target.name, cluster)
        gpus = count_allocated_gpus(pods, cluster)
        if gpu_pods := [name(p) for p in pods if gpus[get_uid(p)]]:
            raise RefusedError(
                f"Node/{node_target.name} has GPU pods: {', '.join(sorted(gpu_pods)[:3])}"
            )
        if decision.parameters.get("processes") != 0:
            raise RefusedError(
                f"Node/{node_target.name}: whether processes use its devices is not known"
            )
        before, state = get_labels(node).get(LABEL), get_labels(node).get(LABEL_STATE)
        if before is None or state != "success":
            raise RefusedError(
                f"Node/{node_target.name}: mig-manager has not reported that "
                "the GPUs have the requested layout",
                hint=f"{LABEL} is {before}, {LABEL_STATE} is {state}; the first cut is people's",
            )
        cordon = set_field(node, node_target, path, CORDON, value=True)
        label = _require_empty(set_field(node, node_target, path, CONFIG, layout), node_target.name)
        return Intent(
            target=node_target,
            capability="mig",
            changes=(cordon.change, label.change, _build_uncordon(cordon, layout)),
            undo=(label.undo, _build_uncordon(cordon, before)),
            lost="to undo it later, somebody has to empty and cordon the node first",
            notes=("pods are let in again when mig-manager says success; until then it waits",),
        )

    def _choose_node(self, decision: Decision, cluster: ClusterReader) -> Intent:
        """Return the writes for the first of a pool's nodes that may be changed now."""
        parameters, why = decision.parameters, []
        for entry in parameters.get("nodes") or ():
            subject = (decision.subject[0], "Node", "", str(entry["node"]))
            node_parameters = {
                "mig_config": entry["mig_config"],
                **parameters,
                "processes": entry["processes"],
            }
            node_decision = msgspec.structs.replace(
                decision, subject=subject, uid=None, parameters=node_parameters
            )
            try:
                return self.writes(node_decision, cluster)
            except RefusedError as error:
                why.append(error.message)
        raise RefusedError(
            f"NodePool/{decision.subject[3]}: no node may be cut again"
            + (f": {'; '.join(why)}" if why else ""),
            hint="all GPUs of a node have to be free, and get the same layout",
        )


def _require_empty(label: UndoableChange, node: str) -> UndoableChange:
    """Return the label's writes for an empty node; they also remove the result of the last change.

    mig-manager writes `success` for this layout. While an earlier `success` is there, the two
    cannot be distinguished. The undo is sent to a cordoned node only.
    """

    def sent(change: Change, **when: Any) -> Change:
        body = {"metadata": {"labels": {**change.body["metadata"]["labels"], LABEL_STATE: PENDING}}}
        return msgspec.structs.replace(change, body=body, vacant=node, when=when)

    return UndoableChange(sent(label.change), sent(label.undo, **{CORDON: True}))


def _build_uncordon(cordon: UndoableChange, layout: str) -> Change:
    """Return the uncordon, which waits until the layout is changed."""
    return msgspec.structs.replace(cordon.undo, when={CONFIG: layout, STATE: "success"})
