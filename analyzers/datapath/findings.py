"""Findings of GPUs that wait for data, and of data that is stored or read too expensively."""

from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_DOWN, Decimal
from fractions import Fraction
from typing import Any

from analyzers.datapath.rows import WorkloadWaits
from analyzers.datapath.tiers import MONTH, ReadRange, TierMove
from analyzers.money import CENT
from analyzers.work import WorkloadCosts, compute_per_day, compute_share
from fallow.models import Finding, FindingKey, Recommendation, State, Subject
from fallow.settings.datapath import Dataset
from fallow.window import Window

ANALYZER = "datapath"
WORKED: tuple[State, ...] = ("low", "productive")


def build_wait(row: WorkloadWaits, money: WorkloadCosts, window: Window) -> Iterator[Finding]:
    """Return the finding of a workload whose GPUs wait: the unused part of those hours."""
    total = money.total(row.owner, WORKED)
    share = min(row.waited / row.gpu_hours, 1.0) if row.gpu_hours else 0.0
    if total is None or share <= 0 or row.act is None or row.input_bps is None:
        return
    usd = None if total.usd is None else compute_share(total.usd, share)
    about = Subject(*row.owner, team=row.team)
    why = (
        f"in {row.hours} hours GPUs are active {row.act:.0%} of the time while "
        f"{row.input_bps / 1e6:,.0f} MB/s come in for each"
    )
    yield FindingKey(ANALYZER, "data_bound", about, window).build(
        evidence="suspected",
        confidence=0.6,
        gpu_hours=round(total.gpu_hours * share, 6),
        usd=usd,
        details={
            "why": why,
            "hours": row.hours,
            "input_bps_per_gpu": round(row.input_bps),
            "activity": round(row.act, 4),
            "share_of_its_hours": round(share, 4),
            "signals": {"compute": "rollup_1h", "host": "pod_sample"},
            "assumed": ["all that GPUs rest in these hours is waiting for input: an upper bound"],
            **({} if usd is not None else {"no_price": "part of its hours has no price"}),
        },
        recommendations=(
            Recommendation(
                verb="feed its GPUs: more loader workers, prefetching, a local cache",
                target=f"{row.workload_kind}/{row.workload}",
                why=why,
                reversible=True,
                undo="restore the loader's settings",
                usd_per_day=compute_per_day(usd, window),
                caution="profile one step first: input and low activity at once may have one cause",
                saving="capacity",
                effort="advanced",
                claims=money.claims(row.owner, share, WORKED),
            ),
        ),
    )


def build_move(  # noqa: PLR0917
    about: Subject,
    data: Dataset,
    reads: ReadRange,
    readers: Sequence[str],
    move: TierMove,
    window: Window,
    days: Fraction,
) -> Finding:
    """Return the finding of data that costs less in another class, including all fees."""
    why = (
        f"{float(data.gib):,.0f} GiB in {move.to.name} instead of {data.storage_class} cost "
        f"{float(move.saving_usd):,.2f} USD less over {int(days)} days, fees paid, even if reads "
        "rise to the margin or cease"
    )
    advice = Recommendation(
        verb=f"move it to {move.to.name}",
        target=f"Dataset/{data.name}",
        why=why,
        reversible=True,
        undo=f"move it back to {data.storage_class}; retrieval and minimum stay are paid again",
        usd_per_day=_round_dollars(move.saving_usd / days),
        caution=f"pays only if the data stays {int(days)} days",
        saving="cash",
        effort="quick win",
    )
    more = {
        "to": move.to.name,
        "stay_usd": float(_round_dollars(move.stay_usd)),
        "move_usd": float(_round_dollars(move.move_usd)),
        "fees_of_the_move_usd": float(_round_dollars(move.fees_usd)),
    }
    return _build_storage(
        "dear_storage", about, data, reads, readers, (move.saving_usd, days), advice, more, window
    )


def build_cache(  # noqa: PLR0917
    about: Subject,
    data: Dataset,
    reads: ReadRange,
    readers: Sequence[str],
    saved: Fraction,
    window: Window,
    days: Fraction,
) -> Finding:
    """Return the finding of data whose re-reads cost more than a cache of it."""
    why = (
        f"read {float(reads.least * days / Fraction(data.gib)):,.1f} times over in {int(days)} "
        f"days at least: a cache saves {float(saved):,.2f} USD of retrieval, its own cost paid"
    )
    advice = Recommendation(
        verb="cache it beside the GPUs",
        target=f"Dataset/{data.name}",
        why=why,
        reversible=True,
        undo="take the cache away",
        usd_per_day=_round_dollars(saved / days),
        caution="an alternative to moving it: do one, then ask again",
        saving="cash",
        effort="advanced",
    )
    return _build_storage(
        "reread_data", about, data, reads, readers, (saved, days), advice, {}, window
    )


def _build_storage(  # noqa: PLR0917
    kind: str,
    about: Subject,
    data: Dataset,
    reads: ReadRange,
    readers: Sequence[str],
    saving: tuple[Fraction, Fraction],
    advice: Recommendation,
    more: Mapping[str, Any],
    window: Window,
) -> Finding:
    usd, days = saving
    length = Fraction(str(window.seconds)) / 86_400
    ratio = [float(r * MONTH / Fraction(data.gib)) for r in (reads.least, reads.most)]
    return FindingKey(ANALYZER, kind, about, window).build(
        evidence="suspected",
        confidence=0.8,
        usd=_round_dollars(usd / days * length),
        details={
            "why": advice.why,
            "gib": float(data.gib),
            "storage_class": data.storage_class,
            "claim": data.claim,
            "readers": list(readers),
            "read_gib_per_day": [round(float(r), 3) for r in (reads.least, reads.most)],
            "rereads_per_month": [round(r, 3) for r in ratio],
            "assumed": [
                "size, class and prices are the site's settings",
                "least: disk reads of pods with no other claim; most: network and all claims too",
                "only pods of this inventory read it",
            ],
            **more,
        },
        recommendations=(advice,),
    )


def _round_dollars(value: Fraction) -> Decimal:
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return exact.quantize(CENT, ROUND_DOWN)
