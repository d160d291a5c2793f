"""Plant failures in a fleet of training jobs, in the proportions of published studies.

`failure_kinds.csv` has what each kind shows, how often, and the verdict that is right.
"""

import random
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache

import msgspec

from analyzers.reliability.incidents.records import Step
from analyzers.reliability.incidents.rows import FailedContainer, LastExit
from fallow.resources import read_table
from fallow.rows import Row

START = datetime(2026, 10, 1, tzinfo=UTC)
DEVICE_DAYS = 54 * 16_384
"""In which 419 jobs were interrupted unexpectedly: the counts of `llama3` (The Llama 3 Herd of
Models, 2024, table 5)."""
FAILED_JOBS = 0.172
"""The share of jobs that end unsuccessfully; their trials by reason are the counts of `philly`
(Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters, 2019, tables 6 and 7)."""
NODE_GPUS = 8
WATCHDOG = LastExit(134, "Error", "Watchdog caught collective operation timeout")
"""The end of the ranks that wait for a failed one."""
SIGKILL = 137


class FailureKind(Row, frozen=True):
    """What a kind of failure shows: values of its GPU, an event, the end of its pod."""

    kind: str
    count: int
    phase: str
    cause: str
    step: Step
    source: str
    study: str = ""
    xid: int = 0
    ecc_dbe: int = 0
    remapped_uncorrectable: int = 0
    row_remap_pending: int = 0
    row_remap_failure: int = 0
    nvlink_crc: int = 0
    """By how much it rises each minute, for ten minutes."""
    throttle_mask: int = 0
    sm_clock_mhz: int | None = None
    temp_c: int | None = None
    lost: str = ""
    """What shows no values afterwards: the GPU for good, or its node for three hours."""
    reason: str = ""
    object: str = ""
    message: str = ""
    code: int | None = None
    words: str = ""
    restarts: int = 0
    others: str = ""
    """The end of the other pods of the job: the `watchdog` ten minutes later, or the `same`."""
    after_s: int | None = None
    """After the start of its job; None = between the second hour and the twentieth."""


class PlantedFailure(msgspec.Struct, frozen=True):
    """A failure of a job: the GPU `slot` of a node, on a day (`turn`), at a time (naive UTC)."""

    kind: FailureKind
    place: int
    turn: int
    node: int
    slot: int
    failed_at: datetime


@cache
def read_kinds() -> tuple[FailureKind, ...]:
    """Return the kinds of failures of `failure_kinds.csv`."""
    rows = read_table("benchmarks", "failure_kinds.csv")
    filled = [{column: cell for column, cell in row.items() if cell} for row in rows]
    return tuple(msgspec.convert(filled, list[FailureKind], strict=False))


def count_failures(kind: FailureKind, gpus: int, days: int, jobs: int) -> int:
    """Return how many failures of a kind there are; one at least, so that each is measured."""
    study = sum(k.count for k in read_kinds() if k.study == kind.study)
    rates = {"llama3": gpus * days * study / DEVICE_DAYS, "philly": jobs * FAILED_JOBS}
    return max(1, round(rates.get(kind.study, 0.0) * kind.count / max(study, 1)))


def plant_failures(gpus: int, days: int, job_nodes: int) -> list[PlantedFailure]:
    """Return the failures of a fleet whose jobs have `job_nodes` nodes for a day.

    A job has one failure at most; the jobs on the nodes of a failure of hardware have no other.

    Raises:
        ValueError: the fleet has fewer jobs than failures.
    """
    chance = random.Random(1)
    places = list(range(gpus // NODE_GPUS // job_nodes))
    chance.shuffle(places)
    kinds = sorted(read_kinds(), key=lambda kind: kind.study != "llama3")
    jobs = len(places) * days
    wanted = [k for k in kinds for _ in range(count_failures(k, gpus, days, jobs))]
    hardware = sum(k.study == "llama3" for k in wanted)
    turns = [(p, chance.randrange(days)) for p in places[:hardware]]
    rest = [(place, turn) for place in places[hardware:] for turn in range(days)]
    chance.shuffle(rest)
    turns += rest
    if len(turns) < len(wanted) or len(places) < hardware:
        raise ValueError(f"{len(wanted)} failures need as many jobs; there are {len(turns)}")
    return [
        _place_failure(kind, place, turn, job_nodes, chance)
        for kind, (place, turn) in zip(wanted, turns, strict=False)
    ]


def _place_failure(
    kind: FailureKind, place: int, turn: int, job_nodes: int, chance: random.Random
) -> PlantedFailure:
    after_s = kind.after_s if kind.after_s is not None else chance.randrange(2 * 3600, 20 * 3600)
    return PlantedFailure(
        kind=kind,
        place=place,
        turn=turn,
        node=place * job_nodes + chance.randrange(job_nodes),
        slot=chance.randrange(NODE_GPUS),
        failed_at=START.replace(tzinfo=None) + timedelta(days=turn, seconds=after_s),
    )


def encode_failures(failures: Sequence[PlantedFailure]) -> str:
    """Return failures as the JSON that `incidents.sql` reads: one flat object for each."""
    return msgspec.json.encode(list(_list_objects(failures))).decode()


def _list_objects(failures: Sequence[PlantedFailure]) -> Iterator[dict[str, object]]:
    waiting = [FailedContainer("main", last_exit=WATCHDOG)]
    for failure in failures:
        yield {
            **msgspec.to_builtins(failure.kind),
            "place": failure.place,
            "turn": failure.turn,
            "node": failure.node,
            "slot": failure.slot,
            "failed_at": failure.failed_at,
            "containers": msgspec.json.encode([_build_container(failure.kind)]).decode(),
            "others_containers": msgspec.json.encode(waiting).decode(),
        }


def _build_container(kind: FailureKind) -> FailedContainer:
    if kind.code is None:
        return FailedContainer("main")
    killed = kind.code == SIGKILL
    last = LastExit(kind.code, "OOMKilled" if killed else "Error", kind.words)
    return FailedContainer("main", oom_killed=killed, restarts=kind.restarts, last_exit=last)
