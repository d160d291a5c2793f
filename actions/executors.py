"""Find the executor that carries out a decision, among those installed."""

from typing import Any

from fallow.acting import Decision
from fallow.boundary import failed
from fallow.errors import RefusedError
from fallow.plugins import installed, load
from fallow.seams import Executor


def every() -> dict[str, Executor]:
    """Return one of each installed executor, by name; one that cannot be loaded is left out."""
    made: dict[str, Any] = {}
    for name in installed("executors"):
        try:
            made[name] = load("executors", name)()
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            failed("executor", name, error)
    return made


def name_of(executor: Executor) -> str:
    """Return the name that an executor is installed under; its class's where it is not."""
    names = (n for n, e in every().items() if type(e) is type(executor))
    return next(names, type(executor).__name__)


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
