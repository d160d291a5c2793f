"""One measured figure, its reach, and the peer measured in the same run."""

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A figure. `reach` is its limit; `at_most` says which side of it is good.

    `cpu_s`: what processors worked for it, which a gate compares with a reference (gates.py).
    """

    name: str
    value: float
    unit: str
    cpu_s: float | None = None
    reach: float | None = None
    at_most: bool = True
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    reach_ratio: float | None = None
    note: str = ""
