"""One actor: a Lease of coordination.k8s.io, taken and renewed under its resourceVersion.

As client-go's leader election: no clock of one host is compared with a clock of another. Who waits
notes by its own monotonic clock when it saw the Lease change, and takes it over once it did not
change for the duration that the Lease names. Who holds it counts from before the write that renewed
it, so its time is over before anybody else's wait is. The times written into the Lease are for
people. Two actors that write the same version at the same moment: the API lets one of them.
"""

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from actions.loop.seams import Door
from fallow.acting import Change, Target
from fallow.action_settings import LeaseSettings
from fallow.errors import RefusedError

API = "coordination.k8s.io/v1"
_CREATED, _OK, _EXISTS, _CONFLICT, _NO_SPACE = 201, 200, 409, 409, 404
RENEW_AFTER = 1 / 3
"""Part of the duration after which it is renewed."""
RETRY_S = 2.0
"""Time between two looks at a Lease that somebody else holds, as client-go's RetryPeriod."""


def monotonic() -> float:
    """Return seconds of a clock that nobody sets; where the system has one, it counts sleep too."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()


class _Observation(msgspec.Struct, frozen=True):
    """A version of the Lease, and when we first saw it, by our own monotonic clock."""

    version: tuple[str, str]
    """uid and resourceVersion"""
    at: float
    lasts: float
    """Seconds without any change after which it may be taken."""


class Lease:
    """Our hold on the right to act.

    `clock` says what time it is, for people who read the Lease; `ticks` are seconds of a clock
    that is never set, and the only ones that count.
    """

    def __init__(
        self,
        door: Door,
        settings: LeaseSettings,
        identity: str,
        clock: Callable[[], datetime],
        ticks: Callable[[], float] = monotonic,
    ) -> None:
        self._door, self._settings, self._clock, self._ticks = door, settings, clock, ticks
        self.identity = identity
        self._renewed: float | None = None
        self._seen: _Observation | None = None
        space = f"/apis/{API}/namespaces/{settings.namespace}/leases"
        self._collection, self._path = space, f"{space}/{settings.name}"

    @property
    def held(self) -> bool:
        """Whether nobody else can hold the lease now, by our last renewal."""
        return self._renewed is not None and self._ticks() - self._renewed < self._lasts

    @property
    def _lasts(self) -> float:
        return float(int(self._settings.duration.total_seconds()))

    def hold(self) -> str | None:
        """Take the lease, or renew it where it is time; return why it is not ours.

        Raises:
            RefusedError: the API forbids it, or the namespace is not there.
            TemporaryError: no answer.
        """
        began = self._ticks()
        if self._renewed is not None and began - self._renewed < self._lasts * RENEW_AFTER:
            return None
        found = self._door.get(self._path)
        if found is None:
            return self._write(self._change(None, self._spec({})), began)
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity):
            left = self._observe(found, spec, began)
            if left > 0:
                self._renewed = None
                return f"{holder} acts, or did less than {left:.0f} s ago"
        return self._write(self._change(found, self._spec(spec)), began)

    def wait(self, sleep: Callable[[float], None]) -> str | None:
        """Take the lease; as long as its holder shows no life, wait until it may be taken.

        Return why it is not ours: the holder renewed it meanwhile.

        Raises:
            RefusedError: the API forbids it, or the namespace is not there.
            TemporaryError: no answer.
        """
        why, first = self.hold(), self._seen
        while why and first is not None and self._seen == first:
            sleep(RETRY_S)
            why = self.hold()
        return why

    def _observe(self, found: Mapping[str, Any], spec: Mapping[str, Any], began: float) -> float:
        """Note a change of the Lease; return for how many seconds it is not to be taken yet.

        `began`: when the request began. What it answers was so at some moment after, so nothing
        changed from the first answer that showed this version until then.
        """
        meta = found.get("metadata") or {}
        version = str(meta.get("uid")), str(meta.get("resourceVersion"))
        if self._seen is None or self._seen.version != version:
            said = spec.get("leaseDurationSeconds")
            lasts = float(said) if isinstance(said, int) and said > 0 else self._lasts
            self._seen = _Observation(version, self._ticks(), lasts)
            return lasts
        return self._seen.at + self._seen.lasts - began

    def give_up(self) -> None:
        """Let another actor begin at once."""
        if self._renewed is None:
            return
        found = self._door.get(self._path)
        if found and (found.get("spec") or {}).get("holderIdentity") == self.identity:
            free = {"holderIdentity": "", "renewTime": None}
            self._door.send(self._change(found, free), dry_run=False)
        self._renewed = None

    def _write(self, change: Change, began: float) -> str | None:
        # What the API made of a write without an answer is not known: it is not ours till we read.
        self._renewed = None
        answer = self._door.send(change, dry_run=False)
        if answer.code in (_OK, _CREATED):
            self._renewed = began
            return None
        if answer.code in (_CONFLICT, 422):
            return "another actor took the lease at the same moment"
        if answer.code == _NO_SPACE:
            raise RefusedError(
                f"there is no namespace {self._settings.namespace!r} for the lease",
                hint="create it, or set actions.lease.namespace",
            )
        if answer.code in (401, 403):
            raise RefusedError(
                f"the lease {self._settings.namespace}/{self._settings.name} may not be written: "
                f"{answer.reason}",
                hint="fallow doctor --actions names the rights that are missing",
            )
        return f"the lease could not be written: {answer.reason or answer.code}"

    def _change(self, found: Mapping[str, Any] | None, spec: dict[str, Any]) -> Change:
        meta = (found or {}).get("metadata") or {}
        target = Target(
            cluster=self._door.name,
            api_version=API,
            kind="Lease",
            namespace=self._settings.namespace,
            name=self._settings.name,
            uid=meta.get("uid", ""),
            resource_version=meta.get("resourceVersion"),
        )
        if found is not None:
            return Change(target=target, method="PATCH", path=self._path, body={"spec": spec})
        named = {"name": target.name, "namespace": target.namespace}
        body = {"apiVersion": API, "kind": "Lease", "metadata": named, "spec": spec}
        return Change(
            target=target,
            method="POST",
            path=self._collection,
            body=body,
            content_type="application/json",
            guarded=False,
        )

    def _spec(self, old: Mapping[str, Any]) -> dict[str, Any]:
        now = _said(self._clock())
        if now == old.get("renewTime"):
            # A clock that stands still, or was set back: a write without a change is none, and
            # who waits would see no life.
            now = _said(self._clock() + timedelta(microseconds=1))
        spec: dict[str, Any] = {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._lasts),
            "renewTime": now,
        }
        if old.get("holderIdentity") != self.identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + bool(old)
        return spec


def _said(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
