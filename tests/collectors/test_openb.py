"""openb: the trace's known figures, and every way in which its files can be wrong."""

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from collectors.openb import EPOCH, import_openb, summarize_import
from fallow.errors import UsageError

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,P100\nn1,32000,1024,0,\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,"
    "creation_time,deletion_time,scheduled_time\n"
    "p0,12000,16384,2,1000,,LS,Running,0,100,5\n"
    "p1,6000,12288,1,460,V100M16|V100M32,BE,Pending,10,90,\n"
    "p2,6000,12288,0,0,,BE,Succeeded,20,80,21\n"
)


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[Path]]:
    def write(*texts: str) -> list[Path]:
        paths = [tmp_path / f"{i}.csv" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return paths

    return write


def test_a_list_of_five_columns_has_requests_and_no_times(
    files: Callable[..., list[Path]],
) -> None:
    text = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np0,12000,16384,2,1000\n"
    machines, specs = files(NODES, text)
    _, pods = import_openb(machines, specs, None, "c")
    (row,) = pods.rows.to_pylist()
    assert (row["gpu_request"], row["phase"], row["labels"]) == (2, None, None)
    assert (row["created_at"], row["last_seen"]) == (None, EPOCH.replace(tzinfo=None))


def test_specs_become_rows_with_requests_times_and_devices(
    files: Callable[..., list[Path]],
) -> None:
    placement = "pod,node,gpu_index\np0,n0,0-1\np1,,\np2,n1,\n"
    machines, specs, placed = files(NODES, PODS, placement)
    nodes, pods = import_openb(machines, specs, placed, "c")
    assert nodes.rows.column("gpu_count").to_pylist() == [2, 0]
    assert nodes.rows.column("gpu_resource").to_pylist() == ["nvidia.com/gpu", None]
    assert nodes.rows.column("memory_bytes").to_pylist() == [262144 * 2**20, 1024 * 2**20]
    first, second, third = pods.rows.to_pylist()
    assert first["gpu_request"] == 2
    assert json.loads(first["devices"]) == [
        {"device": "n0/gpu0", "share": 1.0},
        {"device": "n0/gpu1", "share": 1.0},
    ]
    assert first["created_at"] == EPOCH.replace(tzinfo=None)
    assert first["scheduled_at"] - first["created_at"] == timedelta(seconds=5)
    assert second["gpu_request"] == 0.46
    assert second["scheduled_at"] is None
    assert second["node"] is None
    assert json.loads(second["labels"]) == {"gpu_spec": "V100M16|V100M32"}
    assert (third["gpu_request"], third["gpu_resource"], third["node"]) == (0, None, "n1")
    assert third["devices"] is None
    assert len({row["uid"] for row in (first, second, third)}) == 3


@pytest.mark.parametrize(
    ("nodes", "pods", "placement", "message"),
    [
        ("", PODS, None, "is empty"),
        ("sn,gpu\nn0,1\n", PODS, None, "has no column cpu_milli, memory_mib, model"),
        (NODES.replace(",2,P100", ",two,P100"), PODS, None, "is not an openb table"),
        (NODES.replace("n1", "n0"), PODS, None, "missing or repeated 'sn'"),
        (NODES, PODS.replace("num_gpu", "gpus"), None, "has no column num_gpu"),
        (NODES, PODS, "pod,node,gpu_index\npx,n0,0\n", "places pod 'px'"),
        (NODES, PODS, "pod,node,gpu_index\np0,n9,0\n", "of 'n9': no such node"),
        (NODES, PODS, "pod,node,gpu_index\np0,n0,1-2\n", "on GPU 2 of 'n0': 2 GPUs there"),
    ],
)
def test_wrong_files_are_refused_in_words(
    files: Callable[..., list[Path]], nodes: str, pods: str, placement: str | None, message: str
) -> None:
    machines, specs, placed = files(nodes, pods, placement or "")
    with pytest.raises(UsageError, match=message):
        list(import_openb(machines, specs, placed if placement else None))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read .*nowhere.csv"):
        list(import_openb(tmp_path / "nowhere.csv", tmp_path / "pods.csv"))


def test_the_trace_has_its_known_figures(shared_data: Callable[[str], Path]) -> None:
    batches = import_openb(
        shared_data("openb/openb_node_list_all_node.csv"),
        shared_data("openb/openb_pod_list_default.csv"),
    )
    found = summarize_import(batches)
    assert (found.nodes, found.gpu_nodes, found.gpus, found.pods) == (1523, 1213, 6212, 8152)
    assert (found.cpu_only, found.sharing) == (1088, 3078)
    assert found.by_gpus == {1: 3911, 2: 16, 4: 15, 8: 44}
    assert found.pending == 897
    assert found.pending_gpus == pytest.approx(601.87)
    assert found.placed == 0


def test_queue_waits_are_the_known_ones(shared_data: Callable[[str], Path]) -> None:
    batches = import_openb(
        shared_data("openb/openb_node_list_all_node.csv"),
        shared_data("openb/openb_pod_list_default.csv"),
    )
    pods = pl.concat([pl.DataFrame(b.rows) for b in batches if b.table == "pod"])
    waits = (pods["scheduled_at"] - pods["created_at"]).dt.total_seconds().drop_nulls()
    assert (len(waits), round(float(str(waits.mean())), 2), waits.median()) == (7255, 61.30, 2)


def test_the_first_fit_placement_lies_on_its_own_node_list(
    shared_data: Callable[[str], Path],
) -> None:
    pods = shared_data("openb/openb_pod_list_default.csv")
    placement = shared_data("openb/openb_default_firstfit_placement.csv")
    found = list(
        import_openb(shared_data("openb/openb_node_list_gpu_node.csv"), pods, placement, "openb")
    )
    assert summarize_import(found).placed == 7784
    held: dict[str, float] = {}
    for document in found[1].rows.column("devices").to_pylist():
        for device in json.loads(document or "[]"):
            held[device["device"]] = held.get(device["device"], 0) + device["share"]
    assert max(held.values()) <= 1 + 1e-9
    # data/README.md: idle 447,290 milli-GPU of 6,212 GPUs
    assert 6212 - sum(held.values()) == pytest.approx(447.290)
    with pytest.raises(UsageError, match="number nodes differently"):
        list(import_openb(shared_data("openb/openb_node_list_all_node.csv"), pods, placement))
