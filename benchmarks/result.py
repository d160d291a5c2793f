"""One measured figure, its reach, and the peer measured in the same run."""

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A figure. `reach` is the issue's limit; `at_most` says which side of it is good."""

    name: str
    value: float
    unit: str
    reach: float | None = None
    at_most: bool = True
    peer: str | None = None
    peer_value: float | None = None
    ratio: float | None = None
    reach_ratio: float | None = None
    note: str = ""
