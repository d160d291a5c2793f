"""The Kubernetes collector: inventory of nodes, pods, owners, quotas, events and claims."""

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from collectors.inventory import batches
from collectors.kube.gone import Gone
from collectors.kube.holders import remap
from collectors.kube.looks import Looks
from collectors.kube.shapes import Meta, Node, Pod
from collectors.kube.survey import PODS, Survey, in_group
from collectors.kube.watching import Seen, Watches
from fallow.errors import TemporaryError
from fallow.kube.api import Api, connect
from fallow.settings import KubernetesSettings
from fallow.tables import Batch
from fallow.window import Window

NAME = "kubernetes"
FLUSH_ROWS = 500
"""Changes after which a watch yields, even if more keep coming."""

Row = dict[str, Any]


def utc_now() -> datetime:
    """Return the current moment."""
    return datetime.now(UTC)


class KubernetesCollector:
    """Lists everything with `collect`; keeps nodes and pods current between lists with `watch`.

    One instance remembers which pods it has listed, so that its next list can say who vanished.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        cluster: str,
        clock: Callable[[], datetime] = utc_now,
        *,
        api: Api | None = None,
    ) -> None:
        self._settings, self._cluster, self._clock, self._api = settings, cluster, clock, api
        self._gone = Gone(cluster)

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield rows of nodes, pods, quotas, disruption budgets, events and looks as they are now.

        Inventory has no history: the window only says that a look is due.

        Raises:
            SettingsError: there is no kubeconfig and no service account.
        """
        del window
        looks = Looks(self._cluster, self._clock, NAME)
        with suppress(TemporaryError):  # written down; it would not answer for the rest either
            yield from self._survey(looks).batches()
        yield from batches("scrape", looks.rows)

    def watch(self, stop: threading.Event) -> Iterator[Batch]:
        """Yield `node`, `pod` and `scrape` rows as they change, until `stop` is set.

        Claims, queues and namespaces are those of the beginning; the next `collect` renews them.
        """
        looks = Looks(self._cluster, self._clock, NAME)
        survey = self._survey(looks)
        host = self._open().host
        try:
            survey.prepare()
        except TemporaryError:
            yield from batches("scrape", looks.take())

        def failed(path: str, error: str) -> None:
            looks.record(f"{host}{path}", self._clock(), 0, error)

        watches = Watches(self._open(), limit=self._settings.page_size, on_failure=failed)
        changes = _Changes(survey, self._gone, self._clock)
        for seen in watches.seen(stop):
            if seen is not None:
                changes.take(seen)
                if seen.step.kind == "SYNCED":
                    looks.record(f"{host}{seen.path}", self._clock(), changes.listed, None)
            if seen is None or changes.waiting >= FLUSH_ROWS:
                yield from changes.flush()
                yield from batches("scrape", looks.take())

    def _open(self) -> Api:
        if self._api is None:
            seconds = self._settings.timeout.total_seconds()
            self._api = connect(self._settings.context, timeout_s=seconds)
        return self._api

    def _survey(self, looks: Looks) -> Survey:
        return Survey(
            self._open(),
            self._settings,
            cluster=self._cluster,
            clock=self._clock,
            looks=looks,
            gone=self._gone,
        )


class _Changes:
    """Rows of changed nodes and pods, the newest of each, until they are flushed."""

    def __init__(self, survey: Survey, gone: Gone, clock: Callable[[], datetime]) -> None:
        self._survey, self._gone, self._clock = survey, gone, clock
        self._nodes: dict[str, Row] = {}
        self._pods: dict[str, Row] = {}
        self._vanished: list[Row] = []
        self._held: dict[str, tuple[Meta, Row]] = {}
        self._listing: set[str] = set()
        self.listed = 0

    @property
    def waiting(self) -> int:
        """Rows not flushed yet."""
        return len(self._nodes) + len(self._pods)

    def take(self, seen: Seen) -> None:
        """Learn one step."""
        kind, item = seen.step.kind, seen.step.object
        if kind == "LISTED" and seen.path not in self._listing:
            self._listing.add(seen.path)
            self.listed = 0
            if seen.path == PODS:
                self._gone.begin()
                self._held = {}
        self.listed += kind == "LISTED"
        if isinstance(item, Node):
            self._nodes[item.metadata.name] = self._survey.node(item)
        elif isinstance(item, Pod):
            self._pod(item, deleted=kind == "DELETED")
        if kind == "SYNCED":
            self._listing.discard(seen.path)
            if seen.path == PODS:
                self._vanished += self._gone.complete(self._clock())

    def _pod(self, pod: Pod, *, deleted: bool) -> None:
        meta, row = pod.metadata, self._survey.pod(pod)
        if deleted:
            now = self._clock()
            row["deleted_at"] = row["deleted_at"] or now
            row["finished_at"] = row["finished_at"] or now
            self._gone.forget(meta.uid)
        if in_group(meta):
            self._held[meta.uid] = (meta, row)
        self._pods[meta.uid] = row

    def flush(self) -> Iterator[Batch]:
        """Yield and drop what is waiting."""
        if any(uid in self._held for uid in self._pods):
            self._pods.update({row["uid"]: row for row in remap(self._held.values())})
            ended = [u for u, (_, row) in self._held.items() if row["deleted_at"]]
            for uid in ended:
                del self._held[uid]
        yield from batches("node", self._nodes.values())
        yield from batches("pod", self._pods.values())
        yield from batches("pod", self._vanished)
        self._nodes, self._pods, self._vanished = {}, {}, []
