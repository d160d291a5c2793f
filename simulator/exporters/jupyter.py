"""Write a notebook server's `/api/kernels`, `/api/terminals` and `/api/status`.

`last_activity` of a kernel changes with its output: a cell without output is busy and may look old
(reference domain dossier 1.9).
"""

import uuid
from datetime import UTC, datetime, timedelta

import msgspec

from simulator.models import HostSample

APIS = ("kernels", "terminals", "status")


def is_serving(sample: HostSample) -> bool:
    """Return whether a pod is a notebook server."""
    return sample.kernel_busy is not None


def answer(sample: HostSample, api: str, *, started: datetime | None, skew_s: float = 0.0) -> bytes:
    """Return the JSON of one of `APIS`; `skew_s` is how much its clock is ahead."""
    ahead = timedelta(seconds=skew_s)
    started_at = started or sample.at
    kernel = _format_time((sample.kernel_last_activity or started_at) + ahead)
    shells = sample.terminal_last_activity
    last = max(m for m in (started_at, sample.kernel_last_activity, shells) if m is not None)
    if api == "kernels":
        body: object = [
            {
                "id": str(uuid.uuid5(uuid.NAMESPACE_OID, sample.holder.uid)),
                "name": "python3",
                "last_activity": kernel,
                "execution_state": "busy" if sample.kernel_busy else "idle",
                "connections": int(bool(sample.kernel_busy)),
            }
        ]
    elif api == "terminals":
        body = (
            [] if shells is None else [{"name": "1", "last_activity": _format_time(shells + ahead)}]
        )
    else:
        body = {
            "started": _format_time(started_at + ahead),
            "last_activity": _format_time(last + ahead),
            "connections": int(bool(sample.kernel_busy)),
            "kernels": 1,
        }
    return msgspec.json.encode(body)


def _format_time(timestamp: datetime) -> str:
    return timestamp.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
