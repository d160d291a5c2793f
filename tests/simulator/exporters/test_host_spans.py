"""Hosts over a stretch of time say what looks at its moments say."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from fallow.tables import Batch
from simulator.exporters.host_spans import build_host_spans
from simulator.exporters.quirks import Quirks
from simulator.models import DeviceAllocation, Holder
from simulator.work.behaviours import Script, WorkPlan, build_script
from simulator.work.host import sample_host
from simulator.work.kinds import read_kinds
from tests.simulator.exporters.host_rows import HostRows

START = datetime(2026, 11, 16, 8, tzinfo=UTC).timestamp()
PLANS = ("serving", "day notebook", "terminal notebook", "training")
NODE_OF = {f"uid-{number}": f"node-{number % 2}" for number in range(len(PLANS))}


def holder(number: int) -> Holder:
    return Holder(f"uid-{number}", "team-a", f"pod-{number}", "main", "Job", "work", "a")


def rows(batches: list[Batch], table: str) -> list[dict[str, object]]:
    whole = pa.concat_tables([b.rows for b in batches if b.table == table])
    return sorted(whole.to_pylist(), key=lambda r: (r["ts"], r["pod"]))


def pulls(ran: Script, at: float) -> bool:
    return bool(ran.timeline.kind_at(np.array([at]))[0] == read_kinds().number("pull"))


def near(value: object) -> object:
    """Forgive a moment its last microseconds, which floats round as they like."""
    if isinstance(value, datetime):
        return round(value.replace(tzinfo=UTC).timestamp(), 3)
    return round(value, 3) if isinstance(value, float) else value


@pytest.mark.parametrize("names", [(), ("clock-skew:rate=1",)])
def test_a_stretch_is_its_looks(names: tuple[str, ...]) -> None:
    quirks = Quirks.of(names, 3)
    scripts = {f"uid-{n}": build_script(WorkPlan(b, 7 + n), START) for n, b in enumerate(PLANS)}
    allocations = [
        DeviceAllocation(holder(n), (n,), START + 120 * n, START + 9e3) for n in range(len(PLANS))
    ]
    instants = START + 60.0 * np.arange(200, dtype=np.float64)
    seen = list(
        build_host_spans(
            allocations, scripts, instants, cluster="sim", quirks=quirks, node_of=NODE_OF
        )
    )
    looked = HostRows("sim", 60.0, quirks)
    result: list[Batch] = []
    for at in instants.tolist():
        running = [t for t in allocations if not pulls(scripts[t.holder.uid], at)]
        here = [t for t in running if t.start_s <= at < t.end_s]
        samples = [sample_host(t.holder, scripts[t.holder.uid], at) for t in here]
        result += looked.batches(samples, NODE_OF)
    for table in ("pod_sample", "notebook_sample"):
        ours, theirs = rows(seen, table), rows(result, table)
        assert len(ours) == len(theirs) > 100
        for mine, other in zip(ours, theirs, strict=True):
            assert {k: near(v) for k, v in mine.items()} == {k: near(v) for k, v in other.items()}
