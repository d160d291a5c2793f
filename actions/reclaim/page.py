"""The table of `docs/actions.md`: how each kind is stopped, and what of it comes back."""

from actions.executors import every
from actions.reclaim.kinds import Kind, kinds
from actions.recommend import verbs

HEAD = """\
| kind | stop | undo | what is lost | under Kueue | refused | executor |
|---|---|---|---|---|---|---|"""
KUEUE = "`Workload` `spec.active: false`"
EVICTED = ("evict", "Eviction API (`policy/v1`)", "a new pod of the same manifest", "everything")


def table() -> str:
    """Return the table, a row for each kind."""
    return "\n".join((HEAD, *(_row(kind) for kind in kinds().values())))


def _row(kind: Kind) -> str:
    words = verbs().get(kind.kind)
    if words is None:
        _, how, undo, lost = EVICTED
        verb = EVICTED[0]
    else:
        verb, how, undo, lost = words.verb, words.how, words.undo, words.lost
    executor = next(n for n, e in every().items() if kind.kind in e.kinds and verb in e.verbs)
    group = f" ({kind.group})" if kind.group else ""
    queued = KUEUE if kind.kueue else "the same"
    cells = (f"{kind.kind}{group}", f"{verb}: {how}", undo, lost, queued, kind.refuses, executor)
    return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"
