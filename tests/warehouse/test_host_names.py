"""A short name, a full name, another case or an address of a node are one node."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from collectors.kube.addresses import address_rows
from collectors.series import find_node
from fallow.settings import Settings
from fallow.tables import Batch, get_schema
from warehouse.lake import Warehouse

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
NAIVE = NOW.replace(tzinfo=None)
INVENTORY = [
    ("gpu01", "gpu01"),
    ("gpu02.a.example", "gpu02.a.example"),
    ("ip-10-0-0-3", "ip-10-0-0-3"),
    ("Rack-3", "ip-10-0-0-3"),
    ("10.0.0.3", "ip-10-0-0-3"),
    # Two sites have a gpu04; two nodes say that they are "worker" and "localhost".
    ("gpu04.a.example", "gpu04.a.example"),
    ("gpu04.b.example", "gpu04.b.example"),
    *((name, node) for node in ("gpu01", "gpu02.a.example") for name in ("worker", "localhost")),
]


NAMES = [
    ("gpu01", "gpu01"),
    ("GPU01", "gpu01"),
    ("gpu01.hpc.example.", "gpu01"),
    ("gpu010", "gpu010"),
    ("gpu02", "gpu02.a.example"),
    ("gpu02.a", "gpu02.a.example"),
    ("gpu02.b.example", "gpu02.b.example"),
    ("gpu02.a.example", "gpu02.a.example"),
    ("rack-3", "ip-10-0-0-3"),
    ("10.0.0.3", "ip-10-0-0-3"),
    ("10.0.0", "10.0.0"),
    ("gpu01.hpc.example via 10.0.0.9", "gpu01 via 10.0.0.9"),
    ("10.0.0.30", "10.0.0.30"),
    ("gpu04", "gpu04"),
    ("gpu04.a.example", "gpu04.a.example"),
    ("worker", "worker"),
    ("localhost", "localhost"),
    # of exporters of two names, the node where the inventory knows one
    ("gpu01 and gpu01.hpc.example", "gpu01"),
    ("exporter-7 and gpu02", "gpu02.a.example"),
    ("gpu02 and gpu01", "gpu01 and gpu02.a.example"),
    ("exporter-7 and exporter-8", "exporter-8"),
    (None, None),
]


def test_every_spelling_of_a_node_is_the_node(settings: Settings) -> None:
    rows = list(address_rows(INVENTORY, cluster="test", now=NAIVE))
    samples = [
        {"cluster": "test", "ts": NAIVE, "device": f"GPU-{i}", "node": name, "source": "x"}
        for i, (name, _) in enumerate(NAMES)
    ]
    with Warehouse.open_in_memory(settings, clock=lambda: NOW) as wh:
        wh.ingest([Batch("address", pa.Table.from_pylist(rows, get_schema("address")))])
        for minute in range(2):  # the second finds what the first has stored
            ts = NAIVE - timedelta(minutes=minute)
            sent = pa.Table.from_pylist([{**s, "ts": ts} for s in samples], get_schema("sample"))
            wh.ingest([Batch("sample", sent)])
        stored = wh.query("SELECT DISTINCT device, node FROM sample").to_pylist()
    nodes = {row["device"]: row["node"] for row in stored}
    assert len(stored) == len(NAMES)
    assert nodes == {f"GPU-{i}": node for i, (_, node) in enumerate(NAMES)}


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "dcgm-exporter-x2b4j"])
def test_localhost_is_no_node(host: str) -> None:
    assert find_node({"Hostname": host, "instance": "10.0.0.3:9400"}) == "10.0.0.3"
