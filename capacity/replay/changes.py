"""Change a site's settings: quotas, node pools, priorities, stops by a policy."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from math import inf
from typing import Protocol

import msgspec

from capacity.replay.past import to_milli
from capacity.replay.records import ReplayNode, ReplayPause, ReplayQueue, ReplaySite, ReplayUnit
from fallow.errors import UsageError


class PolicyStop(Protocol):
    """A stop of a policy's back-test (`actions.backtest.BacktestStop`)."""

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """Cluster, kind, namespace and name of the workload."""

    @property
    def at(self) -> datetime:
        """When it was stopped."""

    @property
    def used_at(self) -> datetime | None:
        """When it was next used in fact; None = not again."""

    @property
    def usd_h(self) -> float | None:
        """What a GPU-hour of it cost; None = unknown."""


class SiteChange(Protocol):
    """A setting that is tried."""

    def apply(self, site: ReplaySite) -> ReplaySite:
        """Return the site with it.

        Raises:
            UsageError: it names what the site does not have.
        """
        ...


class QuotaChange(msgspec.Struct, frozen=True):
    """`--quota NAME=GPUs`: the quota of a queue, or of a team's queue.

    Where no quota applies to a team, it gets one that it may not exceed.
    """

    name: str
    gpus: float

    def apply(self, site: ReplaySite) -> ReplaySite:
        """Return the site with this quota."""
        if self.name in {queue.name for queue in site.queues if not queue.is_cohort}:
            return _set_quota(site, self.name, self.gpus)
        _require_team(site, self.name, f"--quota {self.name}={self.gpus:g}")
        queues = {unit.queue for unit in site.units if unit.team == self.name}
        if queues == {""}:
            return self._add_quota(site)
        if len(queues) > 1:
            names = ", ".join(sorted(queues - {""}))
            raise UsageError(
                f"--quota {self.name}={self.gpus:g}: team {self.name} has several queues",
                hint=f"name one: {names}",
            )
        return _set_quota(site, queues.pop(), self.gpus)

    def _add_quota(self, site: ReplaySite) -> ReplaySite:
        queue = ReplayQueue(self.name, to_milli(self.gpus), to_milli(self.gpus))
        return msgspec.structs.replace(
            site,
            scheduler="kueue" if site.scheduler == "plain" else site.scheduler,
            queues=(*site.queues, queue),
            units=tuple(
                msgspec.structs.replace(unit, queue=self.name) if unit.team == self.name else unit
                for unit in site.units
            ),
        )


class PriorityChange(msgspec.Struct, frozen=True):
    """`--priority TEAM=N`: the priority of all of a team's pods."""

    team: str
    priority: int

    def apply(self, site: ReplaySite) -> ReplaySite:
        """Return the site with this priority."""
        _require_team(site, self.team, f"--priority {self.team}={self.priority}")
        return msgspec.structs.replace(site, units=tuple(self._change(unit) for unit in site.units))

    def _change(self, unit: ReplayUnit) -> ReplayUnit:
        if unit.team != self.team:
            return unit
        return msgspec.structs.replace(unit, priority=self.priority)


class PoolChange(msgspec.Struct, frozen=True):
    """`--pool MODEL=GPUs`: all nodes of a model, replaced by so many GPUs of it."""

    model: str
    gpus: int

    def apply(self, site: ReplaySite) -> ReplaySite:
        """Return the site with this pool: nodes of the model's most frequent kind, all the time."""
        mine = [node for node in site.nodes if node.capacity.gpu_model == self.model]
        if not mine:
            models = sorted({node.capacity.gpu_model for node in site.nodes})
            raise UsageError(
                f"--pool {self.model}={self.gpus}: the site has no GPU of this model",
                hint=f"legal: {', '.join(models)}",
            )
        size = Counter(node.capacity.gpus for node in mine).most_common(1)[0][0]
        if self.gpus % size:
            raise UsageError(
                f"--pool {self.model}={self.gpus}: its nodes have {size} GPUs each",
                hint=f"a multiple of {size}, such as {max(1, round(self.gpus / size)) * size}",
            )
        mine.sort(key=lambda node: (node.capacity.gpus != size, node.capacity.name))
        remaining = mine[: self.gpus // size]
        copies = [
            msgspec.structs.replace(mine[0].capacity, name=f"{self.model}-extra-{place}", open=True)
            for place in range(self.gpus // size - len(remaining))
        ]
        capacities = [*(node.capacity for node in remaining), *copies]
        others = [node for node in site.nodes if node.capacity.gpu_model != self.model]
        return msgspec.structs.replace(site, nodes=(*others, *map(ReplayNode, capacities)))


class PolicyChange(msgspec.Struct, frozen=True):
    """`--policy FILE`: the stops of the policy's back-test.

    A unit is stopped as long after its start as in the back-test, each time. It needs its GPUs
    again when its workload was used again; if it was not, its work ends with the stop.
    """

    stops: tuple[PolicyStop, ...]

    def apply(self, site: ReplaySite) -> ReplaySite:
        """Return the site with the units stopped."""
        by_workload: dict[tuple[str, str, str], list[PolicyStop]] = {}
        for stop in sorted(self.stops, key=lambda stop: stop.at):
            _, kind, namespace, name = stop.subject
            by_workload.setdefault((namespace, kind, name), []).append(stop)
        units = tuple(
            _pause_unit(unit, by_workload.get(unit.workload, ()), site.start_s)
            for unit in site.units
        )
        return msgspec.structs.replace(site, units=units)


def _pause_unit(unit: ReplayUnit, stops: Sequence[PolicyStop], start_s: float) -> ReplayUnit:
    """Return the unit with its stops, `stops` in the order of time."""
    if unit.recorded_s is None:
        return unit
    pauses: list[ReplayPause] = []
    runs_again_s = 0.0
    for stop in stops:
        after_s = stop.at.timestamp() - max(unit.recorded_s, start_s)
        if not runs_again_s <= after_s < max(unit.run_s):
            continue
        used = stop.used_at
        pause_s = inf if used is None else (used - stop.at).total_seconds()
        pauses.append(ReplayPause(after_s, pause_s, stop.usd_h))
        runs_again_s = after_s + pause_s
    return msgspec.structs.replace(unit, pauses=tuple(pauses))


def parse_changes(
    quota: Sequence[str] = (),
    pool: Sequence[str] = (),
    priority: Sequence[str] = (),
    stops: Sequence[PolicyStop] | None = None,
) -> tuple[SiteChange, ...]:
    """Read the options NAME=NUMBER; `stops` are those of a policy's back-test, None = no policy.

    Raises:
        UsageError: an option has another shape, a number is not legal, or a name is there twice.
    """
    changes: list[SiteChange] = [] if stops is None else [PolicyChange(tuple(stops))]
    for name, text in _split("quota", quota, "team=GPUs"):
        changes.append(QuotaChange(name, _parse_amount(f"--quota {name}={text}", text)))
    for name, text in _split("pool", pool, "model=GPUs"):
        amount = _parse_amount(f"--pool {name}={text}", text)
        if amount != int(amount):
            raise UsageError(f"--pool {name}={text} is no whole number", hint="--pool H100=64")
        changes.append(PoolChange(name, int(amount)))
    for name, text in _split("priority", priority, "team=N"):
        try:
            changes.append(PriorityChange(name, int(text)))
        except ValueError as error:
            raise UsageError(
                f"--priority {name}={text} is no whole number", hint=f"--priority {name}=100"
            ) from error
    if not changes:
        raise UsageError(
            "a what-if needs a setting to try",
            hint="--policy FILE, --quota team=GPUs, --pool model=GPUs or --priority team=N",
        )
    return tuple(changes)


def _split(option: str, texts: Iterable[str], shape: str) -> list[tuple[str, str]]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name or not value:
            raise UsageError(
                f"--{option} {text} has not the shape {shape}", hint=f"--{option} {shape}"
            )
        if name in pairs:
            raise UsageError(f"--{option} names {name} twice", hint="name it once")
        pairs[name] = value
    return list(pairs.items())


def _parse_amount(option: str, text: str) -> float:
    try:
        amount = float(text)
    except ValueError as error:
        raise UsageError(f"{option} is no number of GPUs", hint="0 or more") from error
    if not 0 <= amount < 10**6:
        raise UsageError(f"{option} is no number of GPUs", hint="0 or more")
    return amount


def _set_quota(site: ReplaySite, name: str, gpus: float) -> ReplaySite:
    def change(queue: ReplayQueue) -> ReplayQueue:
        if queue.name != name or queue.is_cohort:
            return queue
        nominal, limit = to_milli(gpus), queue.limit_milli
        if limit is not None:
            limit = nominal + max(0, limit - queue.nominal_milli)
        return msgspec.structs.replace(queue, nominal_milli=nominal, limit_milli=limit)

    return msgspec.structs.replace(site, queues=tuple(map(change, site.queues)))


def _require_team(site: ReplaySite, team: str, option: str) -> None:
    teams = sorted({unit.team for unit in site.units})
    if team not in teams:
        queues: Mapping[str, None] = dict.fromkeys(q.name for q in site.queues if not q.is_cohort)
        legal = ", ".join([*teams, *(q for q in queues if q not in teams)])
        raise UsageError(f"{option}: there is no team or queue {team!r}", hint=f"legal: {legal}")
