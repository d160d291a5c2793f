"""Look up NVIDIA's XIDs: class, severity, action (`xids.csv`)."""

from functools import cache

import msgspec

from fallow.resources import read_table


class XidMeaning(msgspec.Struct, frozen=True):
    """One XID; `meaning` is empty where the source has none.

    Source: NVIDIA's XID catalogue by its immediate action, as gpud lists it; see the table.
    """

    class_: str
    """application, workflow, gpu, node, mechanics, software, support, log or unknown."""
    severity: str
    """log, application, warn or fatal."""
    action: str
    meaning: str


_UNKNOWN = XidMeaning("unknown", "log", "look it up", "")


@cache
def read_xid_meanings() -> dict[int, XidMeaning]:
    """Return every XID that is listed, by its code."""
    return {
        int(row["xid"]): XidMeaning(row["class"], row["severity"], row["action"], row["meaning"])
        for row in read_table("fallow", "xids.csv")
    }


def get_xid_meaning(code: int) -> XidMeaning:
    """Return an XID's meaning; an XID that is not listed has no consequences."""
    return read_xid_meanings().get(code, _UNKNOWN)
