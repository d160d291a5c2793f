"""Find out which controls of an API server are in force, by its version and its objects."""

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Literal

import msgspec

from actions.cluster.client import KubeClient
from fallow.errors import FallowError
from fallow.kube.discovery import ServedResources
from fallow.kube.objects import name
from fallow.resources import read_table

LABEL = "app.kubernetes.io/part-of=fallow"
ACCOUNT = re.compile(r"system:serviceaccount:([\w.-]+:[\w.-]+)")


class Control(msgspec.Struct, frozen=True):
    """Something that an API server has from a version on."""

    control: str
    root: str
    """Path of the group and version that serve it."""
    resource: str
    bindings: str
    """The resource that puts its objects into force; empty = none is needed."""
    since: str
    next_step: str


class ControlState(msgspec.Struct, frozen=True):
    """Whether a control is in force, and what to do where it is not."""

    control: str
    status: Literal["ok", "warn", "off"]
    finding: str
    next_step: str = ""


@cache
def read_controls() -> tuple[Control, ...]:
    """Return the rows of `controls.csv`."""
    return tuple(Control(**row) for row in read_table("actions.admission", "controls.csv"))


def review_controls(
    cluster: KubeClient, expected: Mapping[str, Iterable[str]]
) -> Iterator[ControlState]:
    """Return the state of each control; `expected`: names of its policies, by control.

    Raises:
        TemporaryError: the API does not answer.
    """
    version = (cluster.get("/version") or {}).get("gitVersion", "of unknown version")
    for control in read_controls():
        served = msgspec.convert(cluster.get(control.root) or {}, ServedResources, strict=False)
        if control.resource not in {row.name for row in served.resources or ()}:
            text = f"the server ({version}) lacks it: it exists from Kubernetes {control.since} on"
            yield ControlState(control.control, "off", text, control.next_step)
        elif not control.bindings:
            text = f"in force (from Kubernetes {control.since} on; {version})"
            yield ControlState(control.control, "ok", text)
        else:
            yield _review_policies(cluster, control, set(expected.get(control.control, ())))


def _review_policies(cluster: KubeClient, control: Control, expected: set[str]) -> ControlState:
    def list_objects(resource: str) -> list[Mapping[str, Any]]:
        return [*cluster.items(f"{control.root}/{resource}", labels=LABEL)]

    try:
        specs = {name(obj): obj["spec"] for obj in list_objects(control.resource)}
        bound = [obj["spec"] for obj in list_objects(control.bindings)]
    except FallowError as error:
        text = f"whether it is in force is unknown: {error.message}"
        return ControlState(control.control, "off", text, f"kubectl get {control.bindings}")
    policies, bindings = set(specs), {spec["policyName"] for spec in bound}
    weak = {spec["policyName"] for spec in bound if not _is_denying(spec)}
    if absent := sorted(bindings - policies):
        text = f"{len(absent)} bindings have no policy and refuse nothing: {', '.join(absent[:3])}"
        return ControlState(control.control, "warn", text, control.next_step)
    if weak:
        text = f"{len(weak)} bindings do not deny everywhere: {', '.join(sorted(weak)[:3])}"
        return ControlState(control.control, "warn", text, control.next_step)
    in_force = policies & bindings
    if not in_force:
        return ControlState(control.control, "off", "not applied", control.next_step)
    if missing := sorted(expected - in_force):
        text = f"{len(missing)} of {len(expected)} are missing: {', '.join(missing[:3])}"
        return ControlState(control.control, "warn", text, control.next_step)
    accounts = sorted(set(ACCOUNT.findall(str([specs[key] for key in in_force]))))
    of = f", for {', '.join(a.replace(':', '/') for a in accounts)} alone" if accounts else ""
    return ControlState(control.control, "ok", f"in force: {len(in_force)} policies{of}")


def _is_denying(binding: Mapping[str, Any]) -> bool:
    """Return whether a binding denies, everywhere; those of mutating policies deny nothing."""
    actions = binding.get("validationActions")
    return actions is None or ("Deny" in actions and not binding.get("matchResources"))
