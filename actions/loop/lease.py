"""One actor: a Lease of coordination.k8s.io, taken and renewed under its resourceVersion.

Two actors write the same version of the Lease; the API lets one of them. A holder that was silent
for the lease's duration and the allowed difference of clocks has lost it.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from actions.loop.seams import Door
from fallow.acting import Change, Target
from fallow.action_settings import LeaseSettings
from fallow.errors import RefusedError

API = "coordination.k8s.io/v1"
_CREATED, _OK, _EXISTS, _CONFLICT, _NO_SPACE = 201, 200, 409, 409, 404
RENEW_AFTER = 1 / 3
"""Part of the duration after which it is renewed."""


class Lease:
    """Our hold on the right to act."""

    def __init__(
        self, door: Door, settings: LeaseSettings, identity: str, clock: Callable[[], datetime]
    ) -> None:
        self._door, self._settings, self._clock = door, settings, clock
        self.identity = identity
        self._renewed: datetime | None = None
        space = f"/apis/{API}/namespaces/{settings.namespace}/leases"
        self._collection, self._path = space, f"{space}/{settings.name}"

    def hold(self) -> str | None:
        """Take the lease, or renew it where it is time; return why it is not ours.

        Raises:
            RefusedError: the API forbids it, or the namespace is not there.
            TemporaryError: no answer.
        """
        now = self._clock()
        if self._renewed and now - self._renewed < self._settings.duration * RENEW_AFTER:
            return None
        found = self._door.get(self._path)
        if found is None:
            return self._write(self._change(None, _spec(self, now, {}), now))
        spec = found.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        if holder not in ("", self.identity):
            until = _expires(spec, self._settings)
            if until is None or until > now:
                return f"{holder} acts" + (f", until {_said(until)} at least" if until else "")
        return self._write(self._change(found, _spec(self, now, spec), now))

    def give_up(self) -> None:
        """Let another actor begin at once."""
        if self._renewed is None:
            return
        found = self._door.get(self._path)
        if found and (found.get("spec") or {}).get("holderIdentity") == self.identity:
            self._door.send(
                self._change(found, {"holderIdentity": "", "renewTime": None}, self._clock()),
                dry_run=False,
            )
        self._renewed = None

    def _write(self, change: Change) -> str | None:
        answer = self._door.send(change, dry_run=False)
        if answer.code in (_OK, _CREATED):
            self._renewed = self._clock()
            return None
        self._renewed = None
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

    def _change(self, found: Mapping[str, Any] | None, spec: dict[str, Any], _: datetime) -> Change:
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


def _spec(lease: Lease, now: datetime, old: Mapping[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "holderIdentity": lease.identity,
        "leaseDurationSeconds": int(lease._settings.duration.total_seconds()),  # noqa: SLF001
        "renewTime": _said(now),
    }
    if old.get("holderIdentity") != lease.identity:
        spec["acquireTime"] = _said(now)
        spec["leaseTransitions"] = int(old.get("leaseTransitions") or 0) + bool(old)
    return spec


def _expires(spec: Mapping[str, Any], settings: LeaseSettings) -> datetime | None:
    """Return from when on a lease may be taken; None = it does not say when it was renewed."""
    renewed = spec.get("renewTime")
    if not renewed:
        return datetime.min.replace(tzinfo=UTC)
    try:
        at = datetime.fromisoformat(renewed)
    except ValueError:
        return None
    told = spec.get("leaseDurationSeconds")
    length = timedelta(seconds=told) if isinstance(told, int) else settings.duration
    return at + length + settings.skew


def _said(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
