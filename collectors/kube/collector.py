"""Collect Kubernetes inventory: nodes, pods, owners, quotas, events and claims."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

from collectors.inventory import build_batches
from collectors.kube.changes import list_changed_nodes, list_changed_pods
from collectors.kube.list_watch import WatchProgress
from collectors.kube.polls import Polls
from collectors.kube.survey import LiveObjects, Survey
from collectors.kube.unlisted_pods import UnlistedPods
from collectors.kube.watches import Watches
from fallow.errors import TemporaryError
from fallow.kube.api import ApiConnection, BackOff, connect
from fallow.settings.collectors import KubernetesSettings
from fallow.tables import Batch
from fallow.window import Window

NAME = "kubernetes"


def get_utc_now() -> datetime:
    """Return the current time."""
    return datetime.now(UTC)


class KubernetesCollector:
    """Lists everything with `collect`; while `watch`, nodes and pods come from watches.

    One instance remembers which pods it has seen, so that it can report deleted pods.
    """

    def __init__(
        self,
        settings: KubernetesSettings,
        cluster: str,
        clock: Callable[[], datetime] = get_utc_now,
        *,
        api: ApiConnection | None = None,
    ) -> None:
        self._settings, self._cluster, self._clock, self._api = settings, cluster, clock, api
        self._unlisted = UnlistedPods(cluster)
        self._watches: Watches | None = None
        self._survey: Survey | None = None

    def collect(self, window: Window) -> Iterator[Batch]:
        """Yield rows of nodes, pods, quotas, disruption budgets, events and polls as they are now.

        Inventory has no history: the window only means that a poll is due.

        Raises:
            SettingsError: there is no kubeconfig and no service account.
        """
        del window
        if self._watches is not None:
            self._watches.await_lists()
        polls = Polls(self._cluster, self._clock, NAME)
        survey = self._begin(polls)
        with suppress(TemporaryError):  # already recorded; no other kind would get an answer
            yield from survey.batches()
            self._survey = survey
        yield from polls.report()

    def nodes_and_pods(self) -> Iterator[Batch]:
        """Yield rows of nodes and pods as they are now, without the rest of `collect`.

        Raises:
            SettingsError: there is no kubeconfig and no service account.
            TemporaryError: the API does not respond.
        """
        survey = self._begin(Polls(self._cluster, self._clock, NAME))
        survey.prepare()
        yield from build_batches("node", survey.nodes(), [])
        yield from build_batches("pod", survey.pods(), [])

    @contextmanager
    def watch(
        self, stop: threading.Event, sleep: Callable[[float], object] | None = None
    ) -> Iterator[None]:
        """Keep nodes and pods current by watches until the block ends or `stop` is set.

        They are listed at the start and after the server has dropped their history (410), otherwise
        never. While the API does not respond, the pauses between two attempts grow to half a
        minute, with jitter; `sleep` (usually a wait for `stop`) makes the pauses.

        Raises:
            SettingsError: there is no kubeconfig and no service account.
        """
        seconds = self._settings.timeout.total_seconds()
        pause = BackOff(sleep or stop.wait)
        api = connect(self._settings.context, timeout_s=seconds, pause=pause)
        limit = self._settings.page_size
        self._watches = Watches(api, limit=limit, clock=self._clock, stop=stop)
        try:
            with self._watches.running():
                yield
        finally:
            self._watches = None

    @contextmanager
    def changes(self) -> Iterator[Sequence[Batch]]:
        """Yield the rows of what the watches saw change since the last call.

        Rows that the block fails to store are yielded again by the next call.
        """
        watches = self._watches
        if watches is None:
            yield ()
            return
        polls = Polls(self._cluster, self._clock, NAME)
        nodes, pods = watches.nodes.take(), watches.pods.take()
        try:
            survey = self._prepared(polls)
            rows = [
                *build_batches("node", list_changed_nodes(survey, nodes), polls.rejections),
                *build_batches(
                    "pod", list_changed_pods(survey, pods, watches.pods), polls.rejections
                ),
            ]
            while watches.rejections:
                polls.rejections.append(watches.rejections.popleft())
            while watches.failures:
                target, at, error = watches.failures.popleft()
                polls.record(target, at, 0, error, end=at)
            yield [*rows, *polls.report()]
        except BaseException:
            watches.nodes.put_back(nodes)
            watches.pods.put_back(pods)
            raise
        for change in pods:
            if change.deleted:
                self._unlisted.forget(change.object.metadata.uid)

    def progress(self) -> Sequence[WatchProgress]:
        """Return what each watch did so far; empty while none runs."""
        return () if self._watches is None else tuple(self._watches.progress.values())

    def _prepared(self, polls: Polls) -> Survey:
        """Return the last poll's claims, owners and queues; poll now if there was none."""
        if self._survey is None:
            survey = self._begin(polls)
            survey.prepare()
            self._survey = survey
        return self._survey

    def _open(self) -> ApiConnection:
        if self._api is None:
            seconds = self._settings.timeout.total_seconds()
            self._api = connect(self._settings.context, timeout_s=seconds)
        return self._api

    def _begin(self, polls: Polls) -> Survey:
        source = LiveObjects(self._open(), polls, page_size=self._settings.page_size)
        return Survey(
            source,
            self._settings.team_labels,
            cluster=self._cluster,
            clock=self._clock,
            polls=polls,
            unlisted=self._unlisted,
            watches=self._watches,
        )
