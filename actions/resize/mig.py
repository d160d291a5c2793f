"""Cut a node's boards again: cordon, ask mig-manager for another layout, let pods come back.

Only nodes without GPU pods and without processes: mig-manager drains no workload, it resets the
board under it. The node lets pods in again once mig-manager says `success`.
"""

from typing import Any, ClassVar

import msgspec

from actions.cluster.allocations import CLAIMS, allocated_gpus
from actions.cluster.members import pods_on
from actions.cluster.objects import deep, labels, name, target, uid
from actions.cluster.pointers import pointer
from actions.nodes.recycling import CORDON, read
from actions.reclaim.writes import Writes, field
from fallow.acting import Change, Decision, Intent
from fallow.errors import RefusedError
from fallow.seams import Cluster, Right

LABEL, LABEL_STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
CONFIG, STATE = pointer("metadata", "labels", LABEL), pointer("metadata", "labels", LABEL_STATE)
POOL = "NodePool"
ASKED = "pending"
"""What mig-manager itself writes while it cuts."""


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

    def intend(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the cordon, the label, and the uncordon that waits for `success`.

        Raises:
            RefusedError: no layout is named, the node has it, is cordoned, holds GPU pods, or the
                evidence does not say that no process is on its devices.
            TemporaryError: the API does not answer.
        """
        if decision.subject[1] == POOL:
            return self._one_of(decision, cluster)
        node, path = read(decision, cluster)
        told = target(node, cluster.name, "Node", "v1")
        wanted = decision.parameters.get("mig_config")
        if not isinstance(wanted, str) or not wanted:
            raise RefusedError(
                f"Node/{told.name}: no layout is named",
                hint="name one of mig-parted's configurations in the policy's rung: mig_config",
            )
        if labels(node).get(LABEL) == wanted:
            raise RefusedError(f"Node/{told.name} is asked to be {wanted} already")
        if deep(node, "spec", "unschedulable"):
            raise RefusedError(f"Node/{told.name} is cordoned by somebody already")
        pods = pods_on(told.name, cluster)
        gpus = allocated_gpus(pods, cluster)
        if holding := [name(p) for p in pods if gpus[uid(p)]]:
            raise RefusedError(f"Node/{told.name} has GPU pods: {', '.join(sorted(holding)[:3])}")
        if decision.parameters.get("processes") != 0:
            raise RefusedError(f"Node/{told.name}: whether processes use its devices is not known")
        before, state = labels(node).get(LABEL), labels(node).get(LABEL_STATE)
        if before is None or state != "success":
            raise RefusedError(
                f"Node/{told.name}: mig-manager has not said that the boards are cut as asked",
                hint=f"{LABEL} is {before}, {LABEL_STATE} is {state}; the first cut is people's",
            )
        cordon = field(node, told, path, CORDON, value=True)
        label = _asked(field(node, told, path, CONFIG, wanted), told.name)
        return Intent(
            target=told,
            capability="mig",
            changes=(cordon.change, label.change, _again(cordon, wanted)),
            undo=(label.undo, _again(cordon, before)),
            lost="to undo it later, somebody has to empty and cordon the node first",
            notes=("pods are let in again when mig-manager says success; until then it waits",),
        )

    def _one_of(self, decision: Decision, cluster: Cluster) -> Intent:
        """Return the writes of the first of a pool's nodes that may be cut again now."""
        said, why = decision.parameters, []
        for one in said.get("nodes") or ():
            subject = (decision.subject[0], "Node", "", str(one["node"]))
            asked = {"mig_config": one["mig_config"], **said, "processes": one["processes"]}
            about = msgspec.structs.replace(decision, subject=subject, uid=None, parameters=asked)
            try:
                return self.intend(about, cluster)
            except RefusedError as error:
                why.append(error.message)
        raise RefusedError(
            f"NodePool/{decision.subject[3]}: no node may be cut again"
            + (f": {'; '.join(why)}" if why else ""),
            hint="all boards of a node have to be free, and would be cut alike",
        )


def _asked(label: Writes, node: str) -> Writes:
    """Return the label's writes for an empty node, with the word of the last time taken away.

    `success` is mig-manager's, and of this layout then; while it stands there from the time
    before, nobody could tell. The undo is sent to a cordoned node only.
    """

    def sent(change: Change, **when: Any) -> Change:
        body = {"metadata": {"labels": {**change.body["metadata"]["labels"], LABEL_STATE: ASKED}}}
        return msgspec.structs.replace(change, body=body, vacant=node, when=when)

    return Writes(sent(label.change), sent(label.undo, **{CORDON: True}))


def _again(cordon: Writes, layout: str) -> Change:
    """Return the uncordon, which waits until the boards are cut."""
    return msgspec.structs.replace(cordon.undo, when={CONFIG: layout, STATE: "success"})
