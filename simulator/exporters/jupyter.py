"""A notebook server's `/api/kernels`, `/api/terminals` and `/api/status`.

`last_activity` of a kernel moves with what it prints: a silent cell is busy and may look old
(reference domain dossier 1.9).
"""

import uuid
from datetime import UTC, datetime, timedelta

import msgspec

from simulator.nouns import HostLook

APIS = ("kernels", "terminals", "status")


def serves(look: HostLook) -> bool:
    """Say whether a pod is a notebook server."""
    return look.kernel_busy is not None


def answer(look: HostLook, api: str, *, started: datetime | None, skew_s: float = 0.0) -> bytes:
    """Return the JSON of one of `APIS`; `skew_s` is how much its clock is ahead."""
    ahead = timedelta(seconds=skew_s)
    begun = started or look.at
    kernel = _text((look.kernel_last_activity or begun) + ahead)
    shells = look.terminal_last_activity
    last = max(m for m in (begun, look.kernel_last_activity, shells) if m is not None)
    if api == "kernels":
        said: object = [
            {
                "id": str(uuid.uuid5(uuid.NAMESPACE_OID, look.holder.uid)),
                "name": "python3",
                "last_activity": kernel,
                "execution_state": "busy" if look.kernel_busy else "idle",
                "connections": int(bool(look.kernel_busy)),
            }
        ]
    elif api == "terminals":
        said = [] if shells is None else [{"name": "1", "last_activity": _text(shells + ahead)}]
    else:
        said = {
            "started": _text(begun + ahead),
            "last_activity": _text(last + ahead),
            "connections": int(bool(look.kernel_busy)),
            "kernels": 1,
        }
    return msgspec.json.encode(said)


def _text(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
