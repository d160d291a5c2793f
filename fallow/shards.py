"""Divide the targets of collection among several collectors: shards.

A target belongs to the shard with the highest hash of shard and target (rendezvous hashing), so
that every process computes the same division without talking to another one, and one more shard
moves only the targets that it takes: 1/n of them.
"""

import re
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from fallow.errors import UsageError

MOST_SHARDS = 256
"""More would be a fault of the settings: one shard scrapes thousands of targets."""
_SHARD = re.compile(r"([0-9]{1,4})/([0-9]{1,4})")
_ORDINAL = re.compile(r".*-([0-9]{1,4})")
_EXAMPLE = "write NUMBER/COUNT, such as 2/8: the second of eight shards"


class Shard(msgspec.Struct, frozen=True, order=True):
    """One of `count` shards; `number` is 1 to `count`."""

    number: int = 1
    count: int = 1

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def owns(self, target: str) -> bool:
        """Return whether the target is collected by this shard."""
        return self.count == 1 or find_shard(target, self.count) == self.number


def find_shard(target: str, count: int) -> int:
    """Return the number of the shard that a target belongs to."""
    key = target.encode()
    return max(
        range(1, count + 1),
        key=lambda number: blake2b(key, digest_size=8, key=number.to_bytes(2, "big")).digest(),
    )


def count_targets(targets: Iterable[str], count: int) -> tuple[int, ...]:
    """Return how many of the targets each of `count` shards has, in the order of the numbers."""
    counts = [0] * count
    for target in targets:
        counts[find_shard(target, count) - 1] += 1
    return tuple(counts)


def parse_shard(text: str) -> Shard:
    """Read `2/8`.

    Raises:
        UsageError: it is no such text, or the number is not one of the count.
    """
    matched = _SHARD.fullmatch(text.strip())
    if matched is None:
        raise UsageError(f"shard {text!r} is not NUMBER/COUNT", hint=_EXAMPLE)
    number, count = int(matched[1]), int(matched[2])
    if not 1 <= count <= MOST_SHARDS:
        raise UsageError(
            f"shard {text!r}: the count must be 1 to {MOST_SHARDS}, it is {count}", hint=_EXAMPLE
        )
    if not 1 <= number <= count:
        raise UsageError(
            f"shard {text!r}: the number must be 1 to {count}, it is {number}", hint=_EXAMPLE
        )
    return Shard(number, count)


def choose_shard(shard: str, shards: int, host: str) -> Shard:
    """Return the shard of this process: what `shard` says, or the ordinal of the host's name.

    `shard` and `shards` are the settings service.shard and service.shards; `host` is the pod's
    name, whose ordinal of a StatefulSet begins at 0.

    Raises:
        UsageError: they contradict each other, or the name has no such ordinal.
    """
    if shard:
        wanted = parse_shard(shard)
        if shards not in {1, wanted.count}:
            raise UsageError(
                f"shard {shard!r} counts {wanted.count} shards, service.shards is {shards}",
                hint=f"set service.shards: {wanted.count} for every collector, or leave it out",
            )
        return wanted
    if shards == 1:
        return Shard()
    matched = _ORDINAL.fullmatch(host)
    if matched is None or int(matched[1]) >= shards:
        raise UsageError(
            f"service.shards is {shards}, and the host's name {host!r} does not end in an "
            f"ordinal of -0 to -{shards - 1}",
            hint=f"run the collectors as a StatefulSet with replicas: {shards}, or name the shard: "
            f"fallow up --role collector --shard 1/{shards}",
        )
    return Shard(int(matched[1]) + 1, shards)
