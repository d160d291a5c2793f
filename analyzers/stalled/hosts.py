"""Check a stalled job's hosts: phases in which it waits for a valid reason; missing checkpoints."""

from collections.abc import Sequence
from datetime import UTC, datetime

import polars as pl

from analyzers.checkpoints import Checkpoints
from analyzers.stalled.gangs import TrainingJob
from analyzers.stalled.limits import read_limits


def find_phase(hosts: pl.DataFrame, job: TrainingJob, start: datetime, end: datetime) -> str | None:
    """Return the phase that a host's traffic shows in a stretch; None = it shows none."""
    rows = _select_within(hosts, job, start, end)
    least = read_limits()["phase_bps"]
    if _find_most(rows, "write_bps") >= least:
        return "a host of it writes: a checkpoint phase"
    if _find_most(rows, "read_bps") >= least:
        return "a host of it reads: a data phase"
    return None


def is_quiescent(
    hosts: pl.DataFrame, job: TrainingJob, start: datetime, end: datetime
) -> bool | None:
    """Return whether every host of a job is quiescent in a stretch; None = one is unknown."""
    rows = _select_within(hosts, job, start, end)
    limits = read_limits()
    if (
        _find_most(rows, "read_bps") >= limits["rest_bps"]
        or _find_most(rows, "write_bps") >= limits["rest_bps"]
        or _find_most(rows, "cores") > limits["rest_cores"]
    ):
        return False
    whole = rows.filter(pl.all_horizontal(pl.col("cores", "read_bps").is_not_null()))
    if whole.is_empty():
        return None
    covered = whole.group_by("who").agg(
        pl.col("at_s").min().alias("from_s"),
        (pl.col("at_s") + pl.col("interval_s")).max().alias("to_s"),
        pl.col("interval_s").max(),
    )
    # Its rows begin within an interval of the stretch's start, and end within two of its end.
    good = covered.filter(
        pl.col("from_s") <= _convert_to_epoch(start) + pl.col("interval_s"),
        pl.col("to_s") >= _convert_to_epoch(end) - 2 * pl.col("interval_s"),
    )
    return True if good.height == len({rank.who for rank in job.ranks}) else None


def find_last_checkpoint(
    checkpoints: Checkpoints | None, bursts: Sequence[float], start: datetime
) -> datetime | None:
    """Return when the last checkpoint before a hang was written, naive UTC; None = none was seen.

    Bursts of writing are checkpoints only where they are regular. `bursts`: epoch seconds.
    """
    if checkpoints is None or checkpoints.source != "writes" or not checkpoints.regular:
        return None
    before = [at for at in bursts if at <= _convert_to_epoch(start)]
    return datetime.fromtimestamp(max(before), UTC).replace(tzinfo=None) if before else None


def find_missed_checkpoint(
    checkpoints: Checkpoints | None, bursts: Sequence[float], start: datetime, end: datetime
) -> float | None:
    """Return the seconds since a job's last burst of writing, if the next one is overdue.

    None = it wrote on time, or its interval is unknown. `bursts`: times in epoch seconds.
    """
    if (
        checkpoints is None
        or checkpoints.source != "writes"
        or not checkpoints.regular
        or not bursts
    ):
        return None
    last = max(bursts)
    ago = _convert_to_epoch(end) - last
    late = read_limits()["late_checkpoint"] * checkpoints.interval_h * 3600
    return ago if last <= _convert_to_epoch(start) and ago >= late else None


def _select_within(
    hosts: pl.DataFrame, job: TrainingJob, start: datetime, end: datetime
) -> pl.DataFrame:
    """Return the rows that began in a stretch: an earlier one also contains work."""
    return hosts.filter(
        pl.col("who").is_in([rank.who for rank in job.ranks]),
        pl.col("at_s") >= _convert_to_epoch(start),
        pl.col("at_s") < _convert_to_epoch(end),
    )


def _find_most(rows: pl.DataFrame, column: str) -> float:
    value = rows[column].max()
    return float(value) if isinstance(value, int | float) else 0.0


def _convert_to_epoch(time: datetime) -> float:
    return time.replace(tzinfo=UTC).timestamp()
