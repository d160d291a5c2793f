"""Back-test 30 days of a fleet, and plan for a thousand findings of it."""

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import msgspec

from actions.backtest import replay_policy
from actions.facts import gather_facts, read_fleet
from actions.plan import plan
from actions.policy.model import ActionBudget, Allow, Match, Policy, PolicyAmount, Stage
from analyzers.idle.analyzer import IdleAnalyzer
from benchmarks import month
from benchmarks.month import read_peak_gib
from benchmarks.result import Result
from benchmarks.stopwatch import Stopwatch
from fallow.models import Finding
from fallow.window import Window
from warehouse.lake import Warehouse

REACH_S, REACH_GIB = 12, 1.5
PLAN_S = 2
FINDINGS = 1000


def run(small: bool) -> list[Result]:
    """Measure 30 days of 10,000 GPUs and a plan for 1,000 findings; small: 2 days of 200."""
    gpus, days = (200, 2) if small else (10_000, 30)
    with month.open_month(gpus, days) as (warehouse, window):
        return [*_backtest(warehouse, window, gpus, days), _plan(warehouse, window)]


def build_policy() -> Policy:
    """Return a policy that stops idle notebooks and jobs after a day's grace, within budgets."""
    return Policy(
        name="bench",
        mode="enforce",
        match=Match(analyzer=("idle",)),
        allow=Allow(namespaces=("*",)),
        stages=(
            Stage("observe"),
            Stage("notify"),
            Stage("grace", wait=timedelta(hours=4)),
            Stage("act", do=("suspend",), verbs=("suspend", "stop", "scale to zero")),
        ),
        budgets=(
            ActionBudget(workloads=PolicyAmount(Decimal(400))),
            ActionBudget(gpus=PolicyAmount(Decimal("0.2"), share=True)),
        ),
        max_resources=PolicyAmount(Decimal(1), share=True),
    )


def _backtest(warehouse: Warehouse, window: Window, gpus: int, days: int) -> Iterator[Result]:
    steps = int(window.seconds // 3600)
    times = [window.start + timedelta(hours=k + 1) for k in range(steps)]
    watch = Stopwatch()
    past = IdleAnalyzer(warehouse.settings.idle).replay(warehouse, window, times)
    remembered = watch.read().wall_s
    result = replay_policy(build_policy(), past, warehouse, window, times)
    lap = watch.read()
    about = f"{days} d of {gpus} GPUs"
    yield Result(
        name=f"backtest, {about}",
        value=lap.wall_s,
        unit="s",
        cpu_s=lap.cpu_s,
        reach=REACH_S,
        note=f"{past.rows.num_rows:,} findings at {steps} evaluations in {remembered:.1f} s; "
        f"{result.cases:,} cases, {result.notified:,} notified, {len(result.stops):,} stopped, "
        f"{result.gpu_hours:,.0f} GPU-hours",
    )
    yield Result(name="backtest: peak memory", value=read_peak_gib(), unit="GiB", reach=REACH_GIB)


def _plan(warehouse: Warehouse, window: Window) -> Result:
    """Plan for the findings of the last day; where they are fewer, the same again."""
    now = window.end
    since = max(window.start, now - timedelta(hours=49))
    idle_findings = IdleAnalyzer(warehouse.settings.idle).find(warehouse, Window(since, now))
    several = [
        _copy_finding(f, n)
        for n in range(FINDINGS // max(len(idle_findings), 1) + 1)
        for f in idle_findings
    ]
    watch = Stopwatch()
    facts = gather_facts(warehouse, several[:FINDINGS], now)
    plan_made = plan([build_policy()], facts, read_fleet(warehouse, now), now)
    lap = watch.read()
    return Result(
        name=f"plan for {len(facts):,} findings",
        value=lap.wall_s,
        unit="s",
        cpu_s=lap.cpu_s,
        reach=PLAN_S,
        note=f"{len(plan_made.decisions):,} decisions, {len(plan_made.refused):,} refused",
    )


def _copy_finding(finding: Finding, n: int) -> Finding:
    return msgspec.structs.replace(finding, id=f"{finding.id}-{n}") if n else finding
