"""What a template reads equals what the full parser reads, whatever changed in between."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import collectors.reader as module
from collectors.reader import Reader, ScrapeCycle, TargetScrape

MOMENT = np.datetime64("2026-11-20T12:00:00", "us")
HEAD = "# HELP DCGM_FI_DEV_GPU_UTIL x\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"


def body(*values: object, pod: str = "p", stamp: str = "", extra: str = "", end: str = "\n") -> str:
    lines = [
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="{i}",UUID="GPU-{i}",pod="{pod}",namespace="n"}} '
        f"{v}{stamp}{end}"
        for i, v in enumerate(values)
    ]
    return HEAD + "".join(lines) + extra


def look(reader: Reader, *bodies: str, name: str = "t") -> ScrapeCycle:
    for i, text in enumerate(bodies):
        reader.feed(f"{name}{i}", text.encode())
    return reader.finish(MOMENT, cluster="c", interval_s=30, source="s")


def rows(reading: ScrapeCycle) -> list[dict[str, object]]:
    return [
        row
        for batch in reading.assembled.batches
        if batch.table == "sample"
        for row in batch.rows.to_pylist()
    ]


def told(reading: ScrapeCycle) -> list[tuple[int, int, int, int, bool]]:
    return [(x.values, x.refused, x.rejected, x.unknown, x.cut) for x in reading.scrapes]


@pytest.fixture
def learned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the targets that went through the full parser."""
    went: list[str] = []
    original = Reader._learn

    def learn(self: Reader, target: str, *rest: object) -> object:
        went.append(target)
        return original(self, target, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module.Reader, "_learn", learn)
    return went


def test_a_second_look_parses_only_values(learned: list[str]) -> None:
    reader = Reader()
    look(reader, body(1, 2), body(3))
    second = look(reader, body(10, 20), body(30.5))
    assert learned == ["t0", "t1"]
    # GPU-0 is on both targets; of two values for one device the busier counts.
    assert {r["device"]: r["gpu_util_pct"] for r in rows(second)} == {"GPU-0": 30.5, "GPU-1": 20.0}


CHANGES = [
    body(10, 20, pod="q"),
    body(10, 20, pod="longer-name"),
    body(10),
    body(10, 20, 30),
    body(10, 20, extra="garbage\n"),
    body(10, 20).replace("GPU-1", "GPU-7"),
    body(10, 20).replace("# HELP DCGM_FI_DEV_GPU_UTIL x", "# HELP DCGM_FI_DEV_GPU_UTIL other"),
    body(10, "NaN"),
    body(10, "+Inf"),
    body(10, "1e1"),
    body(10, "broken"),
    body(10, 20, stamp=" 1763640000000"),
    body(10, 20, stamp=" 1763640000.25"),
    body(10, 20, stamp=" -5"),
    body(10, 20, stamp=" 1763640000000").replace("20 17", "20  17"),
    body(10, 20, extra="go_threads 5\n"),
    body(10, 20).replace("} 20", "}X20"),
    body(10, 20).replace("} 20", "}20"),
    body(10, 20, end=" \n"),
    body(10, 20, end="\r\n"),
    body(10, 20)[:-1],
    body(10, 20)[:-9],
    body(10, 20, stamp=' # {a="b"} 1'),
    "",
    "<html>\n<body>\n</body>\n</html>\n",
    body(10, 2147483632),
]


FIRST = [
    body(1, 2),
    body(1, 2, stamp=" 1763630000000"),
    body(1, "x"),
    body(1, 2, extra="go_threads 5\n"),
    body(1, 2, end="\r\n"),
]


@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("first", FIRST)
def test_any_change_is_read_as_if_seen_first(first: str, changed: str) -> None:
    reader = Reader()
    look(reader, first, body(1, pod="neighbour"))
    twice = look(reader, changed, body(4, pod="neighbour"))
    fresh = look(Reader(), changed, body(4, pod="neighbour"))
    assert rows(twice) == rows(fresh)
    assert told(twice) == told(fresh)
    again = look(reader, changed, body(4, pod="neighbour"))
    assert rows(again) == rows(fresh)


def test_only_the_changed_target_is_learned_again(learned: list[str]) -> None:
    reader = Reader()
    look(reader, *(body(1, 2) for _ in range(5)))
    learned.clear()
    look(reader, body(1, 3), body(2, 3), body(1, 2, pod="new"), body(1, 2), body(9, 9))
    assert learned == ["t2"]


def test_timestamps_of_the_lines_win() -> None:
    reader = Reader()
    for value in (1, 2):
        got = rows(look(reader, body(value, stamp=" 1763640000500")))
        assert got[0]["ts"] == np.datetime64(1763640000500, "ms").astype("datetime64[us]").item()


def test_carriage_returns_keep_their_template(learned: list[str]) -> None:
    reader = Reader()
    for value in (1, 2, 3):
        (row,) = rows(look(reader, body(value, end="\r\n")))
        assert row["gpu_util_pct"] == float(value)
    assert learned == ["t0"]


def test_labels_of_departed_pods_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SLACK", 5)
    reader = Reader()
    sizes = []
    for i in range(30):
        look(reader, body(1, 2, pod=f"job-{i}"))
        sizes.append(len(reader._catalog))
    assert max(sizes) < 12


def test_a_target_without_gpu_metrics_counts_them() -> None:
    reader = Reader()
    for _ in range(2):
        reading = look(reader, "go_goroutines 5\nprocess_open_fds 3\n")
        assert reading.scrapes == [TargetScrape("t0", unknown=2)]


_values = st.lists(
    st.integers(0, 100) | st.floats(0, 100) | st.sampled_from(["NaN", "+Inf", "-1", "2147483632"]),
    min_size=1,
    max_size=4,
)


@given(st.lists(_values, min_size=1, max_size=3), st.lists(_values, min_size=1, max_size=3))
def test_templates_equal_the_full_parser(
    first: list[list[object]], second: list[list[object]]
) -> None:
    reader = Reader()
    look(reader, *(body(*v, pod=f"p{i}") for i, v in enumerate(first)))
    bodies = [body(*v, pod=f"p{i}") for i, v in enumerate(second)]
    learned, fresh = look(reader, *bodies), look(Reader(), *bodies)
    assert rows(learned) == rows(fresh)
    assert told(learned) == told(fresh)


GOLDEN = {
    "samples/h100_node.prom": (8, 160, 0),
    "samples/mig_a100_node.prom": (11, 77, 0),
}


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "expected"), GOLDEN.items())
def test_reference_expositions(
    name: str, expected: tuple[int, int, int], reference: Callable[[str], Path]
) -> None:
    reading = look(Reader(), reference(name).read_text())
    (seen,) = reading.scrapes
    assert (len(rows(reading)), seen.values, seen.rejected) == expected
    by_index = {r["gpu_index"]: r for r in rows(reading)}
    if "h100" in name:
        assert (by_index[4]["pod"], by_index[4]["gpu_util_pct"]) == ("jupyter-alice", 0.0)
        assert by_index[4]["power_w"] == pytest.approx(117.6)
        conflict = by_index[6]
        assert (conflict["gr_engine_active"], conflict["gpu_util_pct"]) == (0.0, 100.0)
        assert (conflict["xid"], conflict["pod"]) == (31, "sweep-17-9hf2c")
        assert by_index[7]["pod"] is None
        assert by_index[7]["mem_used_bytes"] == 4 * 2**20
        assert by_index[0]["energy_mj"] is not None
    else:
        first = next(r for r in rows(reading) if str(r["device"]).endswith("/gi1"))
        assert (first["profile"], first["pod"]) == ("3g.20gb", "bert-embed-5f7")
        assert first["gr_engine_active"] == pytest.approx(0.412)
        assert first["gpu_util_pct"] is None
        assert len({r["device"] for r in rows(reading)}) == 11


REAL = {
    "dcgm/dcgm_exporter_readme_blank_sentinel.prom": (1, 3, 1),
    "dcgm/k80_unallocated_eks.prom": (3, 3, 0),
    "dcgm/t4_k3s_hami_workshop_2026.prom": (1, None, 0),
}


@pytest.mark.real_data
@pytest.mark.parametrize(("name", "expected"), REAL.items())
def test_real_expositions(
    name: str, expected: tuple[int, int | None, int], shared_data: Callable[[str], Path]
) -> None:
    reading = look(Reader(), shared_data(name).read_text().rstrip("\n") + "\n")
    (seen,) = reading.scrapes
    devices, values, rejected = expected
    assert (len(rows(reading)), seen.rejected) == (devices, rejected)
    assert values is None or seen.values == values
    row = rows(reading)[0]
    if "sentinel" in name:
        assert (row["mem_temp_c"], row["sm_clock_mhz"]) == (None, 139.0)
        assert row["pod"] is None
    elif "k80" in name:
        # The host is the exporter's pod: the inventory says on which node that is.
        assert (row["model"], row["pod"], row["node"]) == ("Tesla K80", None, "dcgm-exporter-cmhft")
    else:
        assert (row["node"], row["pod"], row["power_w"]) == (
            "hami-workshop",
            "gpu-test",
            pytest.approx(15.507),
        )
