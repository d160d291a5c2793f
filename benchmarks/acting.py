"""Simulated sites whose seeds nobody has used: what the shipped policies do, beside the truth.

A world is a slice, two at a time. The seeds are drawn from the commit, so that they are new for
every state of the code and the same for whoever runs that state again; `--seeds` names others.
Prints the table of docs/accuracy.md.
"""

import csv
import hashlib
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actions.policy.parser import read_policies as policies
from benchmarks.result import Result
from fallow.settings import Settings
from runtime.experiments.simulation.harm import compute_interval
from runtime.experiments.simulation.options import Options, read
from runtime.experiments.simulation.run import show_nothing
from runtime.experiments.simulation.worlds import simulate_worlds
from simulator import arrivals
from warehouse.runners.local import LocalRunner

SEEDS, DAYS, GPUS, EVERY = 10, 3, 128, "1h"
SMALL_SEED, SMALL_EVERY = "1", "6h"
WORKERS = 2
BEFORE = "bef8a1a"
"""The commit whose mix is the measure."""
POLICIES = Path("policies")
RELEASED, COVERED, HALF_WIDTH = 0.8, 0.9, 0.4
HEAD = (
    "| seed | actions | harmful | early returns (4 h / 24 h) | interval | released | oracle "
    "| share | not time-sliced | predicted | measured | true | steps, differ |\n"
    "|--:|--:|--:|--:|---|--:|--:|--:|--:|---|--:|--:|--:|"
)


def run(
    small: bool, *, seeds: str = "", days: int = 0, gpus: int = 0, quirks: str = ""
) -> list[Result]:
    """Simulate ten worlds of 128 GPUs over 3 days, a turn every hour; small: one of 16.

    The small one lasts a day and has a turn every six hours; its seed is always the same.

    `seeds`: their numbers (`3,5` or `1-10`), or how many are drawn (`x10`).
    """
    days, gpus = days or (1 if small else DAYS), gpus or (16 if small else GPUS)
    seeds_chosen = list_numbers(seeds or (SMALL_SEED if small else f"x{SEEDS}"))
    every = SMALL_EVERY if small else EVERY
    documents = simulate_sites(
        [
            read(days=days, gpus=gpus, seed=seed, every=every, quirk=(quirks,) if quirks else ())
            for seed in seeds_chosen
        ]
    )
    print(render_table(documents), flush=True)
    print(format_categories(documents), flush=True)
    print(mix(), flush=True)
    return _build_results(documents)


def list_numbers(text: str) -> list[int]:
    """Return the seeds that a text names, or draws so many from the commit.

    Raises:
        ValueError: it is neither.
    """
    if text.startswith("x"):
        return draw_seeds(int(text[1:]))
    out: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        out += range(int(first), int(last or first) + 1)
    return out


def draw_seeds(count: int) -> list[int]:
    """Return seeds that follow from the commit alone: nobody can have used them before it."""
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    digests = (hashlib.sha256(f"{commit} {n}".encode()).digest() for n in range(count))
    return [int.from_bytes(digest[:4], "big") % 1_000_000 for digest in digests]


def simulate_sites(worlds: Sequence[Options]) -> list[dict[str, Any]]:
    """Return the document of each world under the shipped policies."""
    runner, rules = LocalRunner(WORKERS), policies([POLICIES])
    try:
        return simulate_worlds(Settings(), worlds, show_nothing, rules, lambda _: runner)
    finally:
        runner.close()


def render_table(documents: Sequence[dict[str, Any]]) -> str:
    """Return a row per world, and all together, as Markdown."""
    rows = [_format_row(str(each["seed"]), [each]) for each in documents]
    if len(documents) > 1:
        rows.append(_format_row("together", documents))
    return "\n".join([HEAD, *rows])


def _format_row(name: str, documents: Sequence[dict[str, Any]]) -> str:
    did = [each["enforced"]["enforcer"] for each in documents]
    early = [each["early_returns"]["*"] for each in did]
    backtests = [each["backtest"] for each in did]
    stops = sum(e["stops"] for e in early)
    soon, day = (sum(e[key] for e in early) for key in ("within_min_expected_rest", "within_24h"))
    low, high = compute_interval(day, stops)
    released, oracle_total, shared, predicted, saved, true = (
        sum(each[key] for each in did)
        for key in (
            "released_gpu_hours",
            "oracle_gpu_hours",
            "oracle_shared_gpu_hours",
            "predicted_gpu_hours",
            "saved_gpu_hours",
            "true_gpu_hours",
        )
    )
    within = " to ".join(f"{end:,.0f}" for end in did[0]["predicted_interval"])
    predicted_text = f"{predicted:,.0f} ({within})" if len(did) == 1 else f"{predicted:,.0f}"
    cells = (
        name,
        sum(each["actions"] for each in did),
        sum(each["harm"]["harmful_stops"] for each in did),
        f"{soon} / {day} of {stops}",
        f"{low:.1%} to {high:.1%}",
        f"{released:,.0f}",
        f"{oracle_total:,.0f}",
        f"{released / oracle_total:.2f}" if oracle_total else "",
        f"{released / (oracle_total - shared):.2f}" if oracle_total > shared else "",
        predicted_text,
        f"{saved:,.0f}",
        f"{true:,.0f}",
        f"{_sum(backtests, 'lived'):.0f}, {sum(len(each['differences']) for each in backtests)}",
    )
    return f"| {' | '.join(map(str, cells))} |"


def format_categories(documents: Sequence[dict[str, Any]]) -> str:
    """Return what the oracle and the policies released by category, and which gates held it."""
    parts: dict[str, list[dict[str, Any]]] = {}
    shares = documents[0]["mix"]
    for each in documents:
        for name, part in each["enforced"]["enforcer"]["by_category"].items():
            parts.setdefault(name, []).append(part)
    lines = [
        "| category | share of the mix | oracle | released | missed | gates (turns) |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for name, in_category in sorted(parts.items(), key=lambda p: -_sum(p[1], "oracle_gpu_hours")):
        gates: dict[str, int] = {}
        for part in in_category:
            for gate, turns in part["gates"].items():
                gates[gate] = gates.get(gate, 0) + turns
        first = sorted(gates.items(), key=lambda g: -g[1])[:6]
        lines.append(
            f"| {name} | {shares.get(name, 0.0):.1%} | "
            f"{_sum(in_category, 'oracle_gpu_hours'):,.0f} | "
            f"{_sum(in_category, 'released_gpu_hours'):,.0f} | {_sum(in_category, 'missed'):.0f} | "
            f"{', '.join(f'{g} {n}' for g, n in first)} |"
        )
    return "\n".join(lines)


def mix() -> str:
    """Return the shares of the mix, then and now: no work that is hard to judge became rarer."""
    now = {c.category: c for c in arrivals.read_categories()}
    commit = subprocess.run(
        ["git", "show", f"{BEFORE}:simulator/mix.csv"], capture_output=True, text=True, check=False
    )
    then = {r["category"]: r for r in csv.DictReader(commit.stdout.splitlines())}
    lines = [
        f"| category | share at {BEFORE} | share now | files on a volume, then | now |",
        "|---|--:|--:|--:|--:|",
    ]
    for name in {**then, **now}:
        before, after = then.get(name), now.get(name)
        lines.append(
            f"| {name} | {float(before['share']) if before else 0:.1%} | "
            f"{after.share if after else 0:.1%} | {'100%' if before else ''} | "
            f"{after.on_volume if after else 0:.0%} |"
        )
    return "\n".join(lines)


def _sum(parts: Sequence[dict[str, Any]], key: str) -> float:
    return float(sum(part[key] for part in parts))


def _build_results(documents: Sequence[dict[str, Any]]) -> list[Result]:
    did = [each["enforced"]["enforcer"] for each in documents]
    about = f"{len(documents)} worlds of {documents[0]['gpus']} GPUs, {documents[0]['days']} d"
    harmful = sum(each["harm"]["harmful_stops"] for each in did)
    causes = {
        cause: sum(each["harm"]["causes"][cause] for each in did)
        for cause in did[0]["harm"]["causes"]
    }
    released, oracle_total = (_sum(did, key) for key in ("released_gpu_hours", "oracle_gpu_hours"))
    acted = [each for each in did if each["actions"]]
    within = [_is_within(each) for each in acted]
    widths = [_compute_half_width(each) for each in acted]
    why = ", ".join(f"{n} {cause}" for cause, n in causes.items() if n)
    return [
        Result(
            name="acting: harmful stops",
            value=harmful,
            unit="",
            reach=0,
            note=f"of {_sum(did, 'actions'):.0f} in {about}{f': {why}' if why else ''}",
        ),
        Result(
            name="acting: released, of what the oracle releases",
            value=released / oracle_total if oracle_total else 0.0,
            unit="",
            reach=RELEASED,
            at_most=False,
            note=f"{released:,.0f} of {oracle_total:,.0f} GPU-h",
        ),
        *_count_early(did),
        _count_kept_promises(did),
        Result(
            name="acting: worlds whose truth lies in the interval predicted",
            value=sum(within) / len(within) if within else 0.0,
            unit="",
            reach=COVERED,
            at_most=False,
            note=f"{sum(within)} of {len(within)} worlds with actions",
        ),
        Result(
            name="acting: half-width of that interval, of the prediction",
            value=statistics.median(widths) if widths else 0.0,
            unit="",
            reach=HALF_WIDTH,
            note="median",
        ),
    ]


def _count_early(did: Sequence[dict[str, Any]]) -> list[Result]:
    """Return, of each policy that acted, how early owners came back against what it declares."""
    by_policy: dict[str, list[dict[str, Any]]] = {}
    for each in did:
        for name, early in each["early_returns"].items():
            if name != "*" and early["declared"] is not None:
                by_policy.setdefault(name, []).append(early)
    out = []
    for name, parts in sorted(by_policy.items()):
        stops, returned = (int(_sum(parts, key)) for key in ("stops", "within_declared"))
        if not stops:
            continue
        soon, day = (_sum(parts, key) for key in ("within_min_expected_rest", "within_24h"))
        out.append(
            Result(
                name=f"acting: {name}: upper end of its reversals",
                value=compute_interval(returned, stops)[1],
                unit="",
                reach=parts[0]["declared"],
                note=f"{returned} of {stops}; within 4 h {soon:.0f}, within 24 h {day:.0f}",
            )
        )
    return out


def _count_kept_promises(did: Sequence[dict[str, Any]]) -> Result:
    """Return how often the service did not do what its back-test promises, or did more."""
    each = [document["backtest"] for document in did]
    differences = [text for document in each for text in document["differences"]]
    for text in differences[:20]:
        print(f"back-test and service differ: {text}", flush=True)
    return Result(
        name="acting: steps in which back-test and service differ",
        value=len(differences),
        unit="",
        reach=0,
        note=f"{_sum(each, 'both'):.0f} of {_sum(each, 'promised'):.0f} promised steps were taken; "
        f"{_sum(each, 'refused'):.0f} acts refused by what was read at their moment",
    )


def _is_within(did: dict[str, Any]) -> bool:
    low, high = did["predicted_interval"]
    return bool(low <= did["true_gpu_hours"] <= high)


def _compute_half_width(did: dict[str, Any]) -> float:
    low, high = did["predicted_interval"]
    predicted = did["predicted_gpu_hours"]
    return float((high - low) / 2 / predicted) if predicted else float("inf")
