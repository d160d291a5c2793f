"""Build an actor from the settings: it runs in `fallow apply` and in the service's job `act`.

warehouse ─► evidence (findings now, facts, new samples) ──┐
kubeconfig ─► client, lease, kill switch ──────────────────┼─► actions.loop.actor.Actor
journal, policies, channels, snapshots ────────────────────┘
"""

import getpass
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actions.cluster.client import connect
from actions.cluster.jupyterhub import JupyterHubClient
from actions.executors import choose_executor
from actions.journal import Journal, JournalState
from actions.loop.actor import Actor
from actions.loop.freeze import Freeze
from actions.loop.lease import Lease
from actions.nodes.eks import EksClient
from actions.notices.channels import ChannelNotifier
from actions.snapshots import Snapshotter
from actions.snapshots.containers import KubernetesRunner
from actions.snapshots.store import open_store
from fallow.settings import Settings
from runtime.operations.acting import plans
from runtime.operations.acting.journal_anchor import describe_anchor

if TYPE_CHECKING:
    from actions.cluster.client import KubeClient
    from actions.loop.protocols import OtherClusters, Transport
    from actions.policy.model import Policy


def get_journal_path(settings: Settings) -> Path:
    """Return the path of the journal."""
    return plans.get_journal_path(settings)


def freeze_file(settings: Settings) -> Path:
    """Return the path of the file whose existence freezes everything."""
    return plans.freeze_file(settings)


def get_actor_name(settings: Settings) -> str:
    """Return the actor's name for the journal: the setting, else the system's user name."""
    if settings.actions.actor:
        return settings.actions.actor
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"


@contextmanager
def open_journal(
    settings: Settings, clock: Callable[[], datetime], *, write: bool = True, actor: str = ""
) -> "Iterator[Journal]":
    """Open the journal of these settings."""
    path = get_journal_path(settings)
    with Journal.open(path, clock, write=write, actor=actor or get_actor_name(settings)) as opened:
        yield opened


@contextmanager
def open_empty_journal(clock: Callable[[], datetime]) -> "Iterator[Journal]":
    """Open an empty journal for a dry run without one; it is deleted afterwards."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Journal.open(Path(folder) / "journal.sqlite", clock) as opened,
    ):
        yield opened


def kill_switch(
    settings: Settings, record: "JournalState | None", cluster: "KubeClient | None"
) -> "Freeze":
    """Return the kill switch of these settings."""
    return Freeze(
        record,
        cluster,
        file=freeze_file(settings),
        namespace=settings.actions.lease.namespace,
        configmap=settings.actions.freeze_configmap,
    )


def connect_cluster(settings: Settings) -> "KubeClient":
    """Open the cluster to act in; see `actions.cluster.client.connect`."""
    return connect(settings)


def build_actor(
    settings: Settings,
    record: "JournalState",
    evidence: Any,
    *,
    cluster: "KubeClient",
    policies: "Sequence[Policy]",
    clock: Callable[[], datetime],
    identity: str = "",
    notifier: Any = None,
    others: "OtherClusters | None" = None,
) -> "Actor":
    """Return an actor over an open client, journal and warehouse; no notifier = the settings'.

    `others`: the other clusters of the catalog; None = budgets of the whole fleet have no room.
    """
    acting = settings.actions
    me = identity or acting.lease.identity or f"{socket.gethostname()}-{os.getpid()}"
    return Actor(
        policies=policies,
        client=cluster,
        record=record,
        lease=Lease(cluster, acting.lease, me, clock),
        freeze=kill_switch(settings, record, cluster),
        evidence=evidence,
        notifier=notifier or open_notifier(settings, record.journal),
        choose=choose_executor,
        clock=clock,
        settings=acting,
        snapshotter=_build_snapshotter(settings, cluster, clock),
        ways=open_transports(settings),
        link=settings.notices.link,
        others=others,
        reviewer=getattr(evidence, "review", lambda _action, _now: None),
    )


def open_notifier(settings: Settings, journal: "Journal") -> ChannelNotifier:
    """Return the notifier of the settings; its messages end with the journal's anchor."""
    return ChannelNotifier(settings.notices, closing=lambda: describe_anchor(journal))


def open_transports(settings: Settings) -> "dict[str, Transport]":
    """Return the transports besides Kubernetes; changes name them."""
    hub_settings = settings.actions.jupyterhub
    return {
        "aws": EksClient(),
        **({"jupyterhub": JupyterHubClient(hub_settings)} if hub_settings.url else {}),
    }


def _build_snapshotter(
    settings: Settings, cluster: "KubeClient", clock: Callable[[], datetime]
) -> Any:
    snapshot_settings = settings.snapshots
    shell = KubernetesRunner(cluster.client, timeout_s=snapshot_settings.timeout.total_seconds())
    store = open_store(snapshot_settings, settings.home)
    return Snapshotter(cluster, shell, store, snapshot_settings, clock=clock)
