"""The waste story: every number with its unit, a banner when the books do not balance."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from dashboards.waste_report import (
    OtherFinding,
    PlantedScore,
    StateTotal,
    Story,
    UnjudgedWorkload,
    WasteRow,
    draw_bar,
    format_money,
    render_markdown,
    render_terminal,
    sort_states,
)
from fallow.models import STATES, Finding, Subject
from fallow.window import Window
from runtime.operations.analysis.story import sum_wastes

END = datetime(2026, 11, 16, tzinfo=UTC)
STORY = Story(
    cluster="demo",
    window=Window(END - timedelta(days=7), END),
    gpus=128,
    nodes=16,
    states=(
        StateTotal("productive", 15000.0, Decimal(90000)),
        StateTotal("idle", 4000.0, Decimal(24000)),
        StateTotal("unknown", 2504.0, Decimal(15024)),
    ),
    wastes=(
        WasteRow(
            workload="team-risk/jupyter-alice",
            owner="risk (Notebook)",
            kind="idle",
            since="Mon 2026-11-09 10:00",
            gpu_hours=150.0,
            usd=Decimal("1031.25"),
            evidence="confirmed",
            why="power 120 W is idle power",
            advice="stop Notebook/jupyter-alice: removing the annotation restarts it",
            finding="abc123def456",
        ),
    ),
    others=(
        OtherFinding(
            subject="NodePool/h100",
            analyzer="pools",
            kind="oversized_pool",
            saving="cash",
            gpu_hours=96.0,
            usd=Decimal("660.48"),
            evidence="suspected",
            why="three nodes would do",
            advice="consolidate NodePool/h100",
            finding="0123456789ab",
        ),
    ),
    unjudged=(UnjudgedWorkload("team-vision/sweep-17", 168.0, "signals contradict each other"),),
    planted=PlantedScore(
        planted_gpu_hours=160.0,
        found_gpu_hours=150.0,
        planted_usd=None,
        found_usd=Decimal(1031),
        precision=1.0,
        recall=0.9375,
        false_alarms=0,
        missed_gpu_hours=12.3,
        extra_gpu_hours=2.3,
        ledger_idle_gpu_hours=4000.0,
    ),
    prices="as of 2026-07-20",
)


def test_one_gpu_on_one_node_is_written_in_the_singular() -> None:
    alone = msgspec.structs.replace(STORY, gpus=1, nodes=1)
    assert "(7d), 1 GPU on 1 node\n" in render_terminal(alone)


def test_the_terminal_story_says_everything_with_units() -> None:
    text = render_terminal(STORY)
    for needed in (
        "2026-11-09 00:00 to 2026-11-16 00:00 UTC (7d)",
        "128 GPUs on 16 nodes",
        "$129,024.00 for 21,504.0 GPU-hours",
        "18.6%",
        "team-risk/jupyter-alice",
        "$1,031.25",
        "150.0 GPU-h",
        "confirmed: power 120 W",
        "stop Notebook/jupyter-alice",
        "Beside idle work, each GPU-hour saved once (1)",
        "NodePool/h100",
        "$660.48",
        "oversized_pool, suspected: three nodes would do",
        "team-vision/sweep-17",
        "precision 100.0%, recall 93.8%",
        "0 false alarms",
        "planted 160.0 - missed 12.3 + idle, not planted 2.3 = found 150.0; + no finding 3,850.0",
        "Audits ok",
        "Prices in USD: as of 2026-07-20",
    ):
        assert needed in text
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = render_terminal(STORY, width=width).splitlines()
    assert max(len(line) for line in lines) <= max(width, 90)


def test_colour_only_when_asked() -> None:
    assert "\x1b[33m" in render_terminal(STORY, colour=True)


def test_markdown_tells_the_same_numbers() -> None:
    text = render_markdown(STORY)
    for needed in ("| idle | 4,000.0 | 18.6% | $24,000.00 |", "jupyter-alice", "`abc123def456`"):
        assert needed in text


def test_books_that_do_not_balance_are_a_banner_before_everything() -> None:
    broken = msgspec.structs.replace(STORY, audit_failures=("capacity: 3 hours differ",))
    for text in (render_terminal(broken), render_markdown(broken)):
        assert text.index("The ledger does not add up: capacity") < text.index("$129,024.00")
        assert "capacity: 3 hours differ" in text
        assert "Audits ok" not in text


def test_no_price_is_said_and_never_zero() -> None:
    unpriced = msgspec.structs.replace(
        STORY, states=tuple(StateTotal(s.state, s.gpu_hours, None) for s in STORY.states)
    )
    assert unpriced.usd is None
    assert "Paid: no price for" in render_terminal(unpriced)
    assert format_money(None) == "no price"


@pytest.mark.parametrize(("share", "blocks"), [(0, 0), (0.5, 5), (1, 10), (2, 10), (-1, 0)])
def test_bars_are_as_long_as_their_share(share: float, blocks: int) -> None:
    bar = draw_bar(share, 10)
    assert (len(bar), bar.count("█")) == (10, blocks)


def test_states_are_told_in_one_order_and_none_is_forgotten() -> None:
    result = sort_states([StateTotal(state, 1.0, None) for state in STATES])
    assert {s.state for s in result} == set(STATES)
    assert result[0].state == "productive"
    assert result[-1].state == "unknown"


def test_dollars_of_wastes_sum_to_what_was_found_rounded_once() -> None:
    def found(name: str) -> Finding:
        return Finding(
            id=name, analyzer="idle", kind="idle_job", subject=Subject("c", "ns", "Job", name),
            window=STORY.window, verdict="idle", evidence="confirmed", confidence=1.0,
            gpu_hours=1.0, usd=Decimal("0.004"), details={},
        )  # fmt: skip

    made = sum_wastes([found(name) for name in "abc"], STORY.window)
    assert sum(w.usd for w in made if w.usd is not None) == Decimal("0.01")
