"""Find the executor that carries out a decision, among those installed."""

from typing import Any

from fallow.action_models import Decision
from fallow.errors import RefusedError
from fallow.plugin_runs import log_failure
from fallow.plugins import find_installed, load
from fallow.protocols import Executor


def load_executors() -> dict[str, Executor]:
    """Return one instance of each installed executor, by name.

    One that fails to load is left out.
    """
    executors: dict[str, Any] = {}
    for name in find_installed("executors"):
        try:
            executors[name] = load("executors", name)()
        except Exception as error:  # noqa: BLE001  (a fault in one plugin is that plugin's)
            log_failure("executor", name, error)
    return executors


def get_name(executor: Executor) -> str:
    """Return the name that an executor is installed under; else the name of its class."""
    names = (n for n, e in load_executors().items() if type(e) is type(executor))
    return next(names, type(executor).__name__)


def choose_executor(decision: Decision) -> Executor:
    """Return the executor of a decision's kind and verb (or of the capability a policy requires).

    Raises:
        RefusedError: no installed executor does that to this kind; the message lists what exists.
    """
    _, kind, namespace, name = decision.subject
    candidates = [e for e in load_executors().values() if kind in e.kinds]
    for executor in candidates:
        if decision.verb in executor.verbs:
            return executor
    for executor in candidates:
        if decision.verb in executor.capabilities:
            return executor
    legal = sorted({v for e in candidates for v in (*e.verbs, *e.capabilities)})
    raise RefusedError(
        f"no executor does {decision.verb!r} to {kind}/{namespace}/{name}",
        hint=f"to a {kind}: {', '.join(legal)}" if legal else f"nothing acts on a {kind}",
    )
