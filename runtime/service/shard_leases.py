"""Let one process at a time collect a shard, and one do the accounting of a catalog.

With a PostgreSQL catalog any number of collectors run. Each claims the lease of its shard before it
collects and renews it meanwhile; of two that claim the same shard one goes. The accounting of the
catalog (roll up, ledger, audits, maintenance) has a lease too: whichever collector gets it does the
work, and another one takes over when that one ends.
"""

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from fallow.errors import FallowError, TemporaryError, UsageError
from fallow.settings import Settings
from fallow.shards import Shard, count_targets
from runtime.operations.ingestion.sharding import list_targets
from warehouse.leases import CatalogLease, claim_lease, release_lease
from warehouse.shards import LEASE_S, ShardFacts, ShardState, read_shards

if TYPE_CHECKING:
    from warehouse.lake import Warehouse

log = logging.getLogger("fallow.service")

ACCOUNTING = "accounting"
RETRY_S = 1.0
"""Time between two attempts to claim a shard that another process has."""


class ShardLeases:
    """The leases of one collector. `renew` is called every third of `seconds` by its own thread.

    `on_states`: is given the shards of the cluster at each renewal.
    """

    def __init__(
        self,
        warehouse: "Warehouse",
        settings: Settings,
        shard: Shard,
        *,
        seconds: float = LEASE_S,
        on_states: Callable[[Sequence[ShardState]], None] = lambda _states: None,
        holder: str | None = None,
    ) -> None:
        self._warehouse, self._shard, self._seconds = warehouse, shard, seconds
        targets = count_targets(list_targets(settings), shard.count)
        self._facts = ShardFacts(settings.cluster, shard.number, shard.count, targets)
        self._on_states = on_states
        self.holder = holder or name_process()
        self._accounts = False
        self.loss: TemporaryError | None = None
        """Why this process must stop collecting."""

    def claim(self, stop: threading.Event) -> None:
        """Claim the shard; wait for the lease of a process that ended without giving it back.

        Raises:
            TemporaryError: another process collects this shard, or PostgreSQL is not reachable.
            UsageError: other shards that run have another count.
        """
        first: CatalogLease | None = None
        while not stop.is_set():
            self._refuse_other_counts(stop)
            lease = self._claim(self._facts.name, ended=first.holder if first else "")
            if lease.holder == self.holder:
                return
            if first is None or lease.holder != first.holder:
                first = lease
            elif lease.renewed_at > first.renewed_at:
                raise self._explain(lease)
            stop.wait(RETRY_S)

    def renew(self) -> None:
        """Renew what this process holds; `loss` says when another process has its shard.

        Raises: as `claim_lease`.
        """
        lease = self._claim(self._facts.name)
        if lease.holder != self.holder:
            self.loss = self._explain(lease)
            return
        if self._accounts:
            self._accounts = self._claim(ACCOUNTING).holder == self.holder
        self._on_states(read_shards(self._warehouse, self._facts.cluster))

    def accounts(self) -> bool:
        """Return whether this process does the accounting now.

        Raises: as `claim_lease`.
        """
        lease = self._claim(ACCOUNTING)
        if is_ended(lease.holder, self.holder):
            lease = self._claim(ACCOUNTING, ended=lease.holder)
        if self._accounts != (lease.holder == self.holder):
            self._accounts = not self._accounts
            log.info("accounting", extra={"here": self._accounts, "holder": lease.holder})
        return self._accounts

    def release(self) -> None:
        """Give back what this process holds, so that the next one need not wait."""
        with suppress(FallowError):
            release_lease(self._warehouse, self._facts.name, self.holder)
            release_lease(self._warehouse, ACCOUNTING, self.holder)

    def _claim(self, name: str, *, ended: str = "") -> CatalogLease:
        facts = msgspec.json.encode(self._facts).decode() if name != ACCOUNTING else "{}"
        if not is_ended(ended, self.holder):
            ended = ""
        return claim_lease(
            self._warehouse, name, self.holder, facts, seconds=self._seconds, ended=ended
        )

    def _refuse_other_counts(self, stop: threading.Event) -> None:
        """Wait until no shard of another count runs; refuse when one of them goes on."""
        seen: dict[int, float] = {}
        while not stop.is_set():
            others = [
                state
                for state in read_shards(self._warehouse, self._facts.cluster)
                if state.running
                and state.shard.count != self._shard.count
                and not is_ended(state.holder or "", self.holder)
            ]
            if not others:
                return
            for state in others:
                renewed = state.seen.timestamp() if state.seen else 0.0
                if renewed > seen.setdefault(state.shard.number, renewed):
                    raise UsageError(
                        f"shard {self._shard} counts {self._shard.count} shards, but {state.holder}"
                        f" collects shard {state.shard} of cluster {self._facts.cluster}",
                        hint=f"start it as one of {state.shard.count}, or stop every collector of "
                        f"this cluster before the first one of {self._shard.count} starts",
                    )
            stop.wait(RETRY_S)

    def _explain(self, lease: CatalogLease) -> TemporaryError:
        facts = self._facts
        return TemporaryError(
            f"shard {self._shard} of cluster {facts.cluster} is collected by {lease.holder}",
            hint="if these are two clusters, give each a name (--cluster); else stop one, or give "
            "each a shard of its own: fallow up --role collector --shard 1/2 and 2/2",
        )


@contextmanager
def hold_shard(
    warehouse: "Warehouse",
    settings: Settings,
    shard: Shard,
    stop: threading.Event,
    *,
    on_states: Callable[[Sequence[ShardState]], None],
) -> Iterator[Callable[[], bool]]:
    """Hold a shard meanwhile; yield a function: does this process do the accounting now?

    An embedded warehouse has one writing process: it collects everything and accounts.

    Raises:
        UsageError: a shard of an embedded warehouse, or other shards that run have another count.
        TemporaryError: another process collects this shard; or it took it over, and `stop` is set.
    """
    if warehouse.place.embedded:
        if shard.count > 1:
            raise UsageError(
                f"shard {shard} needs a catalog that several collectors can write",
                hint="set warehouse.catalog = postgres:... for all of them, or leave the shard out",
            )
        yield lambda: True
        return
    leases = ShardLeases(warehouse, settings, shard, on_states=on_states)
    leases.claim(stop)
    ended = threading.Event()
    thread = threading.Thread(
        target=_keep_renewing, args=(leases, stop, ended, LEASE_S / 3), name="leases", daemon=True
    )
    thread.start()
    log.info("collects", extra={"shard": str(shard), "cluster": settings.cluster})
    try:
        yield leases.accounts
    finally:
        ended.set()
        thread.join(LEASE_S / 3)
        leases.release()
    if leases.loss is not None:
        raise leases.loss


def _keep_renewing(
    leases: ShardLeases, stop: threading.Event, ended: threading.Event, every_s: float
) -> None:
    while not ended.is_set():
        began = time.monotonic()
        try:
            leases.renew()
        except FallowError as error:
            log.warning("leases are not renewed, will try again", extra={"error": error.message})
        if leases.loss is not None:
            log.error("the shard is lost", extra={"why": leases.loss.message})
            stop.set()
            return
        ended.wait(max(every_s - (time.monotonic() - began), RETRY_S))


def name_process() -> str:
    """Return a name of this process that no other one has: host, process id, and a random part."""
    return f"{socket.gethostname()} process {os.getpid()} {secrets.token_hex(4)}"


def is_ended(holder: str, ours: str) -> bool:
    """Return whether a holder was a process of our host that has ended; False = unknown."""
    host, _, rest = holder.partition(" process ")
    ours_host, _, our_rest = ours.partition(" process ")
    number = rest.partition(" ")[0]
    if holder == ours or host != ours_host or not number.isdecimal():
        return False
    if number == our_rest.partition(" ")[0]:
        return True  # our own process id: a pod's container that was started again
    try:
        os.kill(int(number), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
