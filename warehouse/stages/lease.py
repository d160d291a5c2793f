"""Let one driver at a time run a stage, and keep a stale driver from committing it."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from fallow.errors import FallowError, TemporaryError
from warehouse.leases import claim_lease, read_leases, release_lease

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

LEASE_S = 60.0
RENEW_S = 15.0
PREFIX = "stage/"

_lock = threading.Lock()
_running: set[tuple[str, str]] = set()
"""(catalog, stage) of this process. An embedded catalog has one writing process, so that no other
can run a stage; with PostgreSQL the lease in the catalog counts too."""


class StageLease:
    """The right to commit one stage."""

    def __init__(self, warehouse: "Warehouse", stage: str, holder: str) -> None:
        self._warehouse = warehouse
        self._name = f"{PREFIX}{stage}"
        self._holder = holder
        self._ended = threading.Event()

    def claim(self) -> None:
        """Take or renew the lease.

        Raises:
            TemporaryError: another process has it.
        """
        if self._warehouse.place.embedded:
            return
        lease = claim_lease(self._warehouse, self._name, self._holder, "{}", seconds=LEASE_S)
        self._refuse_other(lease.holder, valid=lease.valid)

    def check(self) -> None:
        """Refuse to commit where another driver has the stage by now, or the lease has expired.

        Called inside the write transaction: with PostgreSQL writers take turns, so that a driver
        that takes the stage over later begins after this commit.

        Raises:
            TemporaryError: it is not ours any more; nothing may be committed.
        """
        if self._warehouse.place.embedded:
            return
        for lease in read_leases(self._warehouse, self._name):
            if lease.name == self._name:
                self._refuse_other(lease.holder, valid=lease.valid)
                return
        self._refuse_other("nobody", valid=False)

    def renew_until_ended(self) -> None:
        """Renew the lease until `end`; a failure shows at the next `check`."""
        while not self._ended.wait(RENEW_S):
            with suppress(FallowError):
                self.claim()

    def end(self) -> None:
        """Give the lease back."""
        self._ended.set()
        if not self._warehouse.place.embedded:
            with suppress(FallowError):  # it expires by itself
                release_lease(self._warehouse, self._name, self._holder)

    def _refuse_other(self, holder: str, *, valid: bool) -> None:
        if holder != self._holder or not valid:
            raise TemporaryError(
                f"another process runs the {self._name} of this warehouse; nothing was stored",
                hint="one driver per catalog and stage: the next turn tries again",
            )


@contextmanager
def hold_stage(warehouse: "Warehouse", stage: str) -> Iterator[StageLease]:
    """Hold the right to run a stage while the block runs.

    Raises:
        TemporaryError: another driver has it.
    """
    key = (warehouse.place.catalog, stage)
    lease = StageLease(warehouse, stage, uuid.uuid4().hex)
    with _lock:
        if key in _running:
            raise TemporaryError(
                f"{PREFIX}{stage} of this warehouse runs in this process already", hint="try again"
            )
        _running.add(key)
    try:
        lease.claim()
        threading.Thread(target=lease.renew_until_ended, daemon=True).start()
        try:
            yield lease
        finally:
            lease.end()
    finally:
        with _lock:
            _running.discard(key)


def is_stage_running(warehouse: "Warehouse") -> bool:
    """Whether a stage could still register files that the catalog does not name."""
    with _lock:
        if any(catalog == warehouse.place.catalog for catalog, _ in _running):
            return True
    return any(lease.valid for lease in read_leases(warehouse, PREFIX))
