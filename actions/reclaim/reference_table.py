"""Build the table of `docs/actions.md`: how each kind is stopped, and what an undo restores."""

from actions.executors import load_executors
from actions.reclaim.kinds import WorkloadKind, read_kinds
from actions.recommend import read_verbs

HEAD = """\
| kind | stop | undo | what is lost | under Kueue | refused | executor |
|---|---|---|---|---|---|---|"""
KUEUE = "`Workload` `spec.active: false`"
EVICTED = ("evict", "Eviction API (`policy/v1`)", "a new pod of the same manifest", "everything")


def render_table() -> str:
    """Return the table, a row for each kind."""
    return "\n".join((HEAD, *(_format_row(kind) for kind in read_kinds().values())))


def _format_row(kind: WorkloadKind) -> str:
    verb_row = read_verbs().get(kind.kind)
    if verb_row is None:
        _, stop_text, undo, lost = EVICTED
        verb = EVICTED[0]
    else:
        verb, stop_text, undo, lost = verb_row.verb, verb_row.how, verb_row.undo, verb_row.lost
    executor = next(
        n for n, e in load_executors().items() if kind.kind in e.kinds and verb in e.verbs
    )
    group = f" ({kind.group})" if kind.group else ""
    queued = KUEUE if kind.kueue else "the same"
    cells = (
        f"{kind.kind}{group}",
        f"{verb}: {stop_text}",
        undo,
        lost,
        queued,
        kind.refuses,
        executor,
    )
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"
