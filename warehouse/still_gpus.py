"""Find GPUs that are idle, or whose telemetry is frozen: nothing tells which."""

from collections.abc import Callable

import msgspec

from fallow.protocols import Views
from fallow.window import Window
from warehouse.coverage import MOST_NODES
from warehouse.signals.frozen import is_still
from warehouse.steps import load_step


class StillGpu(msgspec.Struct, frozen=True):
    """A GPU that is idle by its readings alone: frozen telemetry would have the same ones."""

    cluster: str
    node: str | None
    device: str
    model: str | None
    idle_h: float


def list_still_gpus(
    views: Views, window: Window, cluster: str | None = None
) -> tuple[StillGpu, ...]:
    """Return the GPUs without a second sign for or against frozen telemetry.

    In the idle hours of the window's newest day they stand still (`frozen.is_still`), and other
    GPUs do not show that they are frozen.
    """
    parameters = {**window.bounds(), "cluster": cluster}
    rows = views.query(load_step("coverage/still_gpus"), parameters).to_pylist()
    still = (row for row in rows if is_still(row["changes"], row["readings"]))
    return tuple(msgspec.convert(row, StillGpu) for row in still)


def describe_still_gpus(
    views: Views, window: Window, cluster: str | None = None, name: Callable[[str], str] = str
) -> str | None:
    """Say how many GPUs may be idle or frozen, and on which nodes; None = there are none.

    `name`: as in `WindowCoverage.late`.
    """
    gpus = list_still_gpus(views, window, cluster)
    if not gpus:
        return None
    nodes = list(dict.fromkeys(name(gpu.node or "no node") for gpu in gpus))
    more = f" and {len(nodes) - MOST_NODES} more nodes" if len(nodes) > MOST_NODES else ""
    hours = sum(gpu.idle_h for gpu in gpus)
    return (
        f"{len(gpus)} GPUs are idle or their telemetry is frozen ({hours:.0f} GPU-hours of the "
        f"newest day): their power stands still, without an energy counter or another GPU to "
        f"compare them with; on {', '.join(nodes[:MOST_NODES])}{more}"
    )
