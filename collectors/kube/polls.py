"""Time every poll of the API and record whether it succeeded."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from collectors.inventory import build_batches, build_scrape_row
from fallow.errors import SourceError, TemporaryError
from fallow.kube.api import format_failure
from fallow.rejections import Rejection, build_batch
from fallow.tables import Batch


class Poll:
    """One poll while it lasts; `samples` counts what it has read, `rejected` what is unreadable."""

    def __init__(self, rejections: list[Rejection]) -> None:
        self.samples = self.rejected = 0
        self._rejections = rejections
        self.failed = False

    def reject(self, rejection: Rejection) -> None:
        """Add an object that cannot be read."""
        self.rejected += 1
        self._rejections.append(rejection)


class Polls:
    """Collects rows of the `scrape` table.

    A refusal (`SourceError`) is recorded and not raised, so that the other kinds continue. A server
    that does not respond (`TemporaryError`) is recorded and raised, because no kind would succeed.
    """

    def __init__(self, cluster: str, clock: Callable[[], datetime], collector: str) -> None:
        self._cluster, self._clock, self._collector = cluster, clock, collector
        self.rows: list[dict[str, Any]] = []
        self.rejections: list[Rejection] = []
        """What was read and refused."""

    @contextmanager
    def begin(self, target: str) -> Iterator[Poll]:
        """Record the result of the body."""
        start, now = self._clock(), Poll(self.rejections)
        error: str | None = None
        try:
            yield now
        except SourceError as raised:
            error, now.failed = format_failure(raised), True
        except TemporaryError as raised:
            error, now.failed = format_failure(raised), True
            raise
        finally:
            self.record(target, start, now.samples, error, rejected=now.rejected)

    @contextmanager
    def discovery(self, host: str, group: str) -> Iterator[None]:
        """Record only a failure: discovery of what is served polls no objects."""
        start = self._clock()
        try:
            yield
        except SourceError as raised:
            self.record(f"{host}/apis/{group}", start, 0, format_failure(raised))
        except TemporaryError as raised:
            self.record(f"{host}/apis/{group}", start, 0, format_failure(raised))
            raise

    def report(self) -> Iterator[Batch]:
        """Yield the rows of the polls so far and of what was refused, and start empty lists."""
        rejections, self.rejections = self.rejections, []
        if rejections:
            yield build_batch(
                rejections, cluster=self._cluster, source=self._collector, at=self._clock()
            )
        yield from build_batches("scrape", self.take())

    def take(self) -> list[dict[str, Any]]:
        """Return the rows so far and start an empty list; another thread may add rows meanwhile."""
        rows, self.rows = self.rows, []
        return rows

    def record(
        self,
        target: str,
        start: datetime,
        samples: int,
        error: str | None,
        *,
        end: datetime | None = None,
        rejected: int = 0,
    ) -> None:
        """Add one row; without an `end` the poll ends now."""
        self.rows.append(
            build_scrape_row(
                self._collector,
                target,
                cluster=self._cluster,
                start=start,
                end=end or self._clock(),
                samples=samples,
                rejected=rejected,
                error=error,
            )
        )
