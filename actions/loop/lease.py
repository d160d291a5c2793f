"""One actor: a Lease of coordination.k8s.io, taken and renewed under its resourceVersion.

As in client-go's leader election, the clocks of two hosts are never compared. A waiting process
notes by its own monotonic clock when it saw the Lease change. It takes the Lease over once it has
not changed for the duration that the Lease names. The holder counts from before the write that
renewed the Lease, so its time ends before any waiting process takes over. The times written into
the Lease are for people. If two actors write the same version at the same time, the API accepts one
of them.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from actions.loop.protocols import ClusterClient
from fallow.action_models import Change, Target
from fallow.errors import RefusedError
from fallow.settings.actions import LeaseSettings

ANCHOR_KEY = "fallow.dev/journal"
"""Annotation of the Lease: the last row of the journal of who holds it, as ROW:HASH."""
API = "coordination.k8s.io/v1"
_CREATED, _OK, _CONFLICT, _INVALID, _NOT_FOUND = 201, 200, 409, 422, 404
RENEW_AFTER = 1 / 3
"""Share of the duration after which the Lease is renewed."""
RETRY_S = 2.0
"""Time between two reads of a Lease that another process holds, as client-go's RetryPeriod."""


def read_monotonic() -> float:
    """Return seconds of a clock that is never set.

    It includes sleep where the system supports it.
    """
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class _Observation(msgspec.Struct, frozen=True):
    """A version of the Lease, and when we first saw it by our own monotonic clock."""

    version: tuple[str, str]
    """uid and resourceVersion"""
    seen_at: float
    duration_s: float
    """Seconds without a change after which it may be taken."""


class Lease:
    """The lease that permits this process to act.

    `clock` is the wall clock, for people who read the Lease. `ticks` are seconds of a clock that is
    never set; only they decide.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        settings: LeaseSettings,
        identity: str,
        clock: Callable[[], datetime],
        ticks: Callable[[], float] = read_monotonic,
    ) -> None:
        self._cluster, self._settings, self._clock, self._ticks = cluster, settings, clock, ticks
        self.identity = identity
        self.anchor: str | None = None
        """The anchor that the Lease had before our last write; None: it was not read yet."""
        self.renew_anchor: Callable[[str], str] = lambda _anchor: ""
        """Returns the anchor to write instead of one; empty leaves that one."""
        self._renewed: float | None = None
        self._seen: _Observation | None = None
        collection = f"/apis/{API}/namespaces/{settings.namespace}/leases"
        self._collection, self._path = collection, f"{collection}/{settings.name}"

    @property
    def is_held(self) -> bool:
        """Whether no other process can hold the lease now, by our last renewal."""
        return self._renewed is not None and self._ticks() - self._renewed < self._duration_s

    @property
    def _duration_s(self) -> float:
        return float(int(self._settings.duration.total_seconds()))

    def hold(self) -> str | None:
        """Take the lease, or renew it when it is due; return why it is not ours.

        Raises:
            RefusedError: the API forbids it, or the namespace does not exist.
            TemporaryError: no answer.
        """
        started = self._ticks()
        if self._renewed is not None and started - self._renewed < self._duration_s * RENEW_AFTER:
            return None
        lease = self._cluster.get(self._path)
        if lease is None:
            return self._write(self._change(None, self._spec({})), started)
        spec = lease.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity):
            remaining_s = self._observe(lease, spec, started)
            if remaining_s > 0:
                self._renewed = None
                return f"{holder} acts, or did less than {remaining_s:.0f} s ago"
        return self._write(self._change(lease, self._spec(spec)), started)

    def wait(self, sleep: Callable[[float], None]) -> str | None:
        """Take the lease; while its holder does not renew it, wait until it may be taken.

        Return why it is not ours: the holder renewed it meanwhile.

        Raises:
            RefusedError: the API forbids it, or the namespace does not exist.
            TemporaryError: no answer.
        """
        why, first = self.hold(), self._seen
        while why and first is not None and self._seen == first:
            sleep(RETRY_S)
            why = self.hold()
        return why

    def _observe(self, lease: Mapping[str, Any], spec: Mapping[str, Any], started: float) -> float:
        """Note a change of the Lease; return for how many seconds it must not be taken yet.

        `started`: when the request began. Its answer is the state at some time after that. So
        nothing changed between the first answer with this version and `started`.
        """
        meta = lease.get("metadata") or {}
        version = str(meta.get("uid")), str(meta.get("resourceVersion"))
        if self._seen is None or self._seen.version != version:
            duration = spec.get("leaseDurationSeconds")
            duration_s = (
                float(duration) if isinstance(duration, int) and duration > 0 else self._duration_s
            )
            self._seen = _Observation(version, self._ticks(), duration_s)
            return duration_s
        return self._seen.seen_at + self._seen.duration_s - started

    def give_up(self) -> None:
        """Release the lease, so that another actor can begin at once."""
        if self._renewed is None:
            return
        lease = self._cluster.get(self._path)
        if lease and (lease.get("spec") or {}).get("holderIdentity") == self.identity:
            free = {"holderIdentity": "", "renewTime": None}
            self._cluster.send(self._change(lease, free), dry_run=False)
        self._renewed = None

    def _write(self, change: Change, started: float) -> str | None:
        # The effect of a write without an answer is unknown: the lease is not ours until we read
        # it.
        self._renewed = None
        result = self._cluster.send(change, dry_run=False)
        if result.code in (_OK, _CREATED):
            self._renewed = started
            return None
        if result.code in (_CONFLICT, _INVALID):
            return "another actor took the lease at the same time"
        if result.code == _NOT_FOUND:
            raise RefusedError(
                f"there is no namespace {self._settings.namespace!r} for the lease",
                hint="create it, or set actions.lease.namespace",
            )
        if result.code in (401, 403):
            raise RefusedError(
                f"the lease {self._settings.namespace}/{self._settings.name} may not be written: "
                f"{result.reason}",
                hint="fallow doctor --actions names the rights that are missing",
            )
        return f"the lease could not be written: {result.reason or result.code}"

    def _change(self, lease: Mapping[str, Any] | None, spec: dict[str, Any]) -> Change:
        meta = (lease or {}).get("metadata") or {}
        target = Target(
            cluster=self._cluster.name,
            api_version=API,
            kind="Lease",
            namespace=self._settings.namespace,
            name=self._settings.name,
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion"),
        )
        self.anchor = str((meta.get("annotations") or {}).get(ANCHOR_KEY) or "")
        anchor = self.renew_anchor(self.anchor)
        anchors: dict[str, Any] = {"annotations": {ANCHOR_KEY: anchor}} if anchor else {}
        if lease is not None:
            body: dict[str, Any] = {"spec": spec, **({"metadata": anchors} if anchors else {})}
            return Change(target=target, method="PATCH", path=self._path, body=body)
        metadata = {"name": target.name, "namespace": target.namespace, **anchors}
        body = {"apiVersion": API, "kind": "Lease", "metadata": metadata, "spec": spec}
        return Change(
            target=target,
            method="POST",
            path=self._collection,
            body=body,
            content_type="application/json",
            guarded=False,
        )

    def _spec(self, spec_before: Mapping[str, Any]) -> dict[str, Any]:
        now = _format_time(self._clock())
        if now == spec_before.get("renewTime"):
            # A clock that stands still, or was set back: a write without a difference changes
            # nothing, and waiting processes would see no renewal.
            now = _format_time(self._clock() + timedelta(microseconds=1))
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._duration_s),
            "renewTime": now,
        }
        if spec_before.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec_before.get("leaseTransitions") or 0) + bool(
                spec_before
            )
        return spec


def _format_time(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
