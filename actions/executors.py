"""Find the executor that carries out a decision, among those installed."""

from typing import Any

from fallow.acting import Decision
from fallow.errors import RefusedError
from fallow.plugins import installed, load
from fallow.seams import Executor


def every() -> dict[str, Executor]:
    """Return one of each installed executor, by name."""
    made: dict[str, Any] = {name: load("executors", name)() for name in installed("executors")}
    return made


def for_(decision: Decision) -> Executor:
    """Return the executor of a decision's kind and verb (or the capability a policy asks for).

    Raises:
        RefusedError: nothing installed does that to this kind; the message says what does what.
    """
    _, kind, namespace, name = decision.subject
    able = [e for e in every().values() if kind in e.kinds]
    for executor in able:
        if decision.verb in executor.verbs:
            return executor
    for executor in able:
        if decision.verb in executor.capabilities:
            return executor
    can = sorted({v for e in able for v in (*e.verbs, *e.capabilities)})
    raise RefusedError(
        f"no executor does {decision.verb!r} to {kind}/{namespace}/{name}",
        hint=f"to a {kind}: {', '.join(can)}" if can else f"nothing acts on a {kind}",
    )
