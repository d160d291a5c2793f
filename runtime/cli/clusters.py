"""Open the cluster that a command acts in: the site's, or the simulated one of a demo's home."""

from typing import TYPE_CHECKING

from fallow.demo_marker import has_demo_cluster
from runtime.operations import live_actor

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient
    from fallow.settings import Settings
    from runtime.cli.options import CommandRun


def open_cluster(run: "CommandRun", settings: "Settings") -> "KubeClient":
    """Return a client of the cluster; a demo's is served until the command ends.

    A demo's home never reaches a real cluster, nor a real home a simulated one.

    Raises: as `live_actor.connect_cluster`; as `open_demo_client`.
    """
    if not has_demo_cluster(settings.home):
        return live_actor.connect_cluster(settings)
    from runtime.experiments.demo_cluster import (  # noqa: PLC0415  (0.5 s that a site need not pay)
        open_demo_client,
    )

    return run.resources.enter_context(open_demo_client(settings))
