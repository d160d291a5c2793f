"""`fallow queue` and `fallow why-pending`: who waits for GPUs, why, and what would let it in."""

from typing import Annotated

import typer

from runtime.cli.options import CommandRun, Output
from runtime.operations.analysis import pending


def list_queue(run: CommandRun) -> None:
    """List workloads that wait: cost, reason, blockers, ways in.

    Reads only: nothing is stopped, moved or lent.
    """
    with run.warehouse(run.settings()) as warehouse:
        records, at = pending.read_queue(
            warehouse, at=run.now(), cluster=run.options.get("cluster")
        )
    if run.output is Output.json:
        rows = [pending.describe_queued(record) for record in records]
        run.data(rows, noun="queue", at=at.isoformat(), notes=list(pending.NOTES))
        return
    run.data([pending.build_queue_row(record) for record in records], noun="queue")
    blocked = sum(bool(record.blocked_by) for record in records)
    ways = sum(record.cheapest_way is not None for record in records)
    beside = sum(bool(record.at_once) for record in records)
    run.say(
        f"{at:%Y-%m-%d %H:%M} UTC: {len(records)} workload{'s' * (len(records) != 1)} "
        f"wait{'s' * (len(records) == 1)}; {blocked} blocked by idle GPUs or lower priorities, "
        f"{ways} with a way in, {beside} of them at once"
    )
    for note in pending.NOTES:
        run.say(note)


def why_pending(
    run: CommandRun,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind/namespace/name, or a part of it")
    ],
) -> None:
    """Say why a workload waits, and where and how it would get in.

    Reads only: nothing is moved. Of each place: GPUs that are free there; whether its pods have
    room on them; and whether it fits, or what refuses it.
    """
    with run.warehouse(run.settings()) as warehouse:
        record, at = pending.explain_why_pending(
            warehouse, workload, at=run.now(), cluster=run.options.get("cluster")
        )
    described = pending.describe_pending(record, at)
    rows = pending.build_place_rows(record.answer)
    if run.output is Output.json:
        run.data(rows, noun="why_pending", **described)
        return
    run.data(rows, noun="why_pending")
    gpus = "GPUs of an unknown number"
    if record.gpus is not None:
        gpus = f"{record.gpus:g} GPU{'s' * (record.gpus != 1)} in all"
    pods = f"{record.pods} pod{'s' * (record.pods != 1)}, {gpus}"
    words = described["answer"].replace("_", " ")
    run.say(f"{described['workload']} ({pods}) waits since {record.since:%Y-%m-%d %H:%M} UTC")
    if record.objects:
        run.say(f"it has no pods yet: it waits by {', '.join(record.objects)}")
    run.say(": ".join(filter(None, (words, described["why"]))))
    for reason in record.reasons:
        run.say(f"why ({reason.source}): {reason.words}: {reason.text}")
    for blocker in record.blocked_by:
        name = pending.format_key(blocker.key)
        run.say(f"blocked by {name}: {blocker.gpus} GPUs that it could use; {blocker.why}")
    if record.held_by_others:
        run.say(record.held_by_others)
    run.say(f"cheapest way in: {record.describe_way()}")
    for text in record.unknown:
        run.say(f"unknown: {text}")
    run.say(pending.NOTE)
