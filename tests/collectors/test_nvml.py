"""NVML: units, instances, unsupported values, processes to pods, and no driver at all."""

import json
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml  # noqa: TID253  (no start-up time to save here)
import pytest

from collectors.nvml import NvmlCollector
from collectors.processes import parse_cgroup
from fallow.settings.collectors import NvmlSettings
from fallow.window import Window
from runtime.cli import run

UID_A = "0a1b2c3d-1111-2222-3333-444455556666"
UID_B = "0a1b2c3d-7777-8888-9999-aaaabbbbcccc"
CONTAINER = "c" * 64


def failing(code: int) -> Exception:
    return pynvml.NVMLError(code)  # type: ignore[no-any-return]


class Binding:
    """What pynvml answers on a node whose boards the test describes."""

    def __init__(self, *gpus: dict[str, Any], init: int | None = None) -> None:
        self.boards, self.init, self.down = gpus, init, 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDevice"):
            return getattr(pynvml, name)  # constants and error classes

        def call(handle: dict[str, Any], *_: Any) -> Any:
            answer = handle.get(name, failing(pynvml.NVML_ERROR_NOT_SUPPORTED))
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init is not None:
            raise failing(self.init)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.down += 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.boards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        if "lost" in self.boards[index]:
            raise failing(pynvml.NVML_ERROR_GPU_IS_LOST)
        return self.boards[index]

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Any, slot: int) -> Any:  # noqa: N802
        if slot >= len(handle["instances"]):
            raise failing(pynvml.NVML_ERROR_NOT_FOUND)
        return handle["instances"][slot]


def board(uuid: str = "GPU-0", **more: Any) -> dict[str, Any]:
    memory = SimpleNamespace(used=10, free=20, reserved=5, total=35)
    return {
        "nvmlDeviceGetUUID": uuid,
        "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB",
        "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=37, memory=12),
        "nvmlDeviceGetPowerUsage": 63500,
        "nvmlDeviceGetTotalEnergyConsumption": 123456789,
        "nvmlDeviceGetTemperature": 41,
        "nvmlDeviceGetClockInfo": 1410,
        "nvmlDeviceGetMemoryInfo": memory,
        "nvmlDeviceGetRemappedRows": (0, 2, 0, 1),
        "nvmlDeviceGetComputeRunningProcesses": [],
        **more,
    }


def process(pid: int, used: int | None = 100) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=used)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host's /proc and /var/log/pods: pids 1 and 2 in pod a, 3 in pod b, 4 on the host."""
    slug = UID_A.replace("-", "_")
    slice_a = f"/kubepods.slice/kubepods-pod{slug}.slice/cri-containerd-{CONTAINER}.scope"
    texts = {
        1: f"0::{slice_a}\n",
        2: f"12:cpu:/kubepods/burstable/pod{UID_A}/{CONTAINER}\n",
        3: f"0::/kubepods/pod{UID_B}/{CONTAINER}\n",
        4: "0::/system.slice/sshd.service\n",
    }
    for pid, text in texts.items():
        (tmp_path / "proc" / str(pid)).mkdir(parents=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(text)
    for name in (f"ml_a_{UID_A}", f"ml_b_{UID_B}", "odd"):
        (tmp_path / "pods" / name).mkdir(parents=True)
    return tmp_path


def look(now: datetime, binding: Any, host: Path | None = None) -> dict[str, list[dict[str, Any]]]:
    root = host or Path("/nowhere")
    answer = NvmlSettings(node="n0", proc_root=root / "proc", pod_logs=root / "pods")
    collector = NvmlCollector(answer, "c", lambda: now, binding)
    rows: dict[str, list[dict[str, Any]]] = {"sample": [], "holding": [], "scrape": []}
    for batch in collector.collect(Window.last(timedelta(minutes=1), now=now)):
        rows[batch.table] += batch.rows.to_pylist()
    return rows


def test_a_board_is_read_in_canonical_units(now: datetime) -> None:
    (row,) = look(now, Binding(board()))["sample"]
    assert (row["device"], row["node"], row["gpu_index"]) == ("GPU-0", "n0", 0)
    assert (row["gpu_util_pct"], row["power_w"], row["energy_mj"]) == (37, 63.5, 123456789)
    assert (row["mem_used_bytes"], row["mem_reserved_bytes"]) == (10, 5)
    assert (row["remapped_uncorrectable"], row["row_remap_failure"]) == (2, 1)
    assert row["proc_count"] == 0


def test_a_sensor_that_reads_nothing_is_none(now: datetime) -> None:
    """Of an A100 with 40 GB: 25 W are half of what it uses without work."""
    for milliwatts, watts in ((0, None), (24_999, None), (25_000, 25.0)):
        (row,) = look(now, Binding(board(nvmlDeviceGetPowerUsage=milliwatts)))["sample"]
        assert row["power_w"] == watts


def test_what_a_board_does_not_support_is_null(now: datetime) -> None:
    bare = {"nvmlDeviceGetUUID": b"GPU-1", "nvmlDeviceGetName": b"Tesla K80"}
    rows = look(now, Binding(bare))
    (row,) = rows["sample"]
    assert (row["device"], row["model"]) == ("GPU-1", "Tesla K80")
    for column in (
        "gpu_util_pct",
        "power_w",
        "energy_mj",
        "mem_used_bytes",
        "proc_count",
        "ecc_dbe",
    ):
        assert row[column] is None, column
    assert rows["scrape"][0]["up"]


def test_processes_of_one_pod_name_the_holder(now: datetime, host: Path) -> None:
    held = board(nvmlDeviceGetComputeRunningProcesses=[process(1), process(2), process(4)])
    rows = look(now, Binding(held), host)
    (row,) = rows["sample"]
    assert (row["namespace"], row["pod"], row["proc_count"]) == ("ml", "a", 3)
    assert rows["holding"] == []


def test_processes_of_two_pods_share_the_device(now: datetime, host: Path) -> None:
    processes = [process(1, 100), process(2, 50), process(3, None)]
    rows = look(now, Binding(board(nvmlDeviceGetComputeRunningProcesses=processes)), host)
    (row,) = rows["sample"]
    assert (row["pod"], row["sharers"]) == (None, 2)
    used = {(h["device"], h["pod"]): h["mem_used_bytes"] for h in rows["holding"]}
    assert used == {("GPU-0", "a"): 150, ("GPU-0", "b"): None}


def test_processes_that_cannot_be_placed_name_nobody(now: datetime, host: Path) -> None:
    held = board(nvmlDeviceGetComputeRunningProcesses=[process(4), process(99)])
    (row,) = look(now, Binding(held), host)["sample"]
    assert (row["pod"], row["proc_count"]) == (None, 2)


def test_instances_stand_for_their_board(now: datetime, host: Path) -> None:
    def instance(number: int, pid: int) -> dict[str, Any]:
        return {
            "nvmlDeviceGetName": "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
            "nvmlDeviceGetGpuInstanceId": number,
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=number, free=1, reserved=0),
            "nvmlDeviceGetComputeRunningProcesses": [process(pid)],
        }

    cut = board(
        nvmlDeviceGetMigMode=(pynvml.NVML_DEVICE_MIG_ENABLE, 1),
        nvmlDeviceGetMaxMigDeviceCount=7,
        instances=[instance(7, 1), instance(9, 3)],
    )
    rows = look(now, Binding(cut), host)["sample"]
    assert [(r["device"], r["parent"], r["profile"], r["pod"]) for r in rows] == [
        ("GPU-0/gi7", "GPU-0", "1g.5gb", "a"),
        ("GPU-0/gi9", "GPU-0", "1g.5gb", "b"),
    ]
    assert [r["mem_used_bytes"] for r in rows] == [7, 9]
    assert [r["power_w"] for r in rows] == [63.5, 63.5]
    assert [r["gpu_util_pct"] for r in rows] == [None, None]  # a board's, not an instance's


def test_a_lost_gpu_is_a_failed_look_and_the_others_go_on(now: datetime) -> None:
    rows = look(now, binding := Binding({"lost": True}, board("GPU-1")))
    assert [r["device"] for r in rows["sample"]] == ["GPU-1"]
    samples = {r["target"]: (r["up"], r["error"]) for r in rows["scrape"]}
    assert samples["n0"] == (True, None)
    assert samples["n0/gpu0"][0] is False
    assert binding.down == 1


@pytest.mark.parametrize(
    "code", [pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
)
def test_no_driver_is_said_in_words(now: datetime, code: int) -> None:
    rows = look(now, Binding(init=code))
    assert rows["sample"] == []
    assert [(r["up"], r["error"]) for r in rows["scrape"]] == [(False, "no NVIDIA driver")]


def test_the_real_binding_on_a_machine_without_a_driver(now: datetime) -> None:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        assert look(now, None)["scrape"][0]["error"] == "no NVIDIA driver"
    else:
        pynvml.nvmlShutdown()
        pytest.skip("this machine has an NVIDIA driver")


@pytest.mark.parametrize(
    ("path", "container"),
    [
        (f"/kubepods/burstable/pod{UID_A}/{CONTAINER}", CONTAINER),
        (f"/kubepods/pod{UID_A}/docker-{CONTAINER}.scope", CONTAINER),
        (f"/kubepods/pod{UID_A}/crio-{CONTAINER}.scope", CONTAINER),
        (f"/kubepods/pod{UID_A}/cri-containerd-{CONTAINER}.scope", CONTAINER),
        (f"/kubepods-pod{UID_A.replace('-', '_')}.slice", None),
    ],
)
def test_cgroup_paths_of_every_runtime(path: str, container: str | None) -> None:
    for text in (f"0::{path}\n", f"3:name=systemd:/\n2:cpu,cpuacct:{path}\n"):
        found = parse_cgroup(text)
        assert found is not None
        assert (found.pod_uid, found.container_id) == (UID_A, container)


@pytest.mark.parametrize("text", ["", "0::/", "0::/kubepods/podshort/x", "garbage"])
def test_other_cgroups_are_no_pods(text: str) -> None:
    assert parse_cgroup(text) is None


def test_the_node_is_the_one_that_the_pod_was_told_or_the_host(
    now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "host-7")
    for result, node in ((None, "host-7"), ("gpu-node-3", "gpu-node-3")):
        if result is not None:
            monkeypatch.setenv("NODE_NAME", result)
        else:
            monkeypatch.delenv("NODE_NAME", raising=False)
        collector = NvmlCollector(NvmlSettings(), "c", lambda: now, Binding(board()))
        batches = collector.collect(Window.last(timedelta(minutes=1), now=now))
        (row,) = next(b for b in batches if b.table == "sample").rows.to_pylist()
        assert row["node"] == node


@pytest.mark.parametrize("named", [True, False])
def test_the_command_reads_the_gpus_of_this_machine(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    named: bool,
) -> None:
    """By its name without any setting, or without a name where the settings want it."""
    monkeypatch.setattr(
        "collectors.nvml._import_pynvml", lambda: Binding(board("GPU-a"), board("GPU-b"))
    )
    monkeypatch.setenv("NODE_NAME", "n0")
    config = tmp_path / "fallow.yaml"
    config.write_text("{}\n" if named else "nvml: {enabled: true}\n")
    home = ["--home", str(tmp_path / "home"), "--config", str(config)]
    source = ["--source", "nvml"] if named else []
    assert run(["collect", "--once", *source, *home, "-o", "json"]) == 0
    (scrape,) = json.loads(capsys.readouterr().out)["scrapes"]
    assert (scrape["collector"], scrape["target"], scrape["values"]) == ("nvml", "n0", 2)
    query = "SELECT device, node, model FROM sample ORDER BY device"
    assert run(["warehouse", "query", query, *home, "-o", "json"]) == 0
    assert [row["device"] for row in json.loads(capsys.readouterr().out)["rows"]] == [
        "GPU-a",
        "GPU-b",
    ]


def test_the_command_says_that_there_is_no_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    binding = Binding(init=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    monkeypatch.setattr("collectors.nvml._import_pynvml", lambda: binding)
    home = ["--home", str(tmp_path / "home")]
    assert run(["collect", "--once", "--source", "nvml", *home]) == 75
    assert "no NVIDIA driver" in capsys.readouterr().out
