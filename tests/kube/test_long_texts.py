"""An import's memory does not grow with the bytes of annotations that nothing reads."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.kube import dump_file
from collectors.kube.dump import import_kubectl
from tests.peak_memory import run_measured

HAMI = "hami.io/vgpu-devices-allocated"
NOW = datetime(2026, 11, 20, tzinfo=UTC)


def write_dump(path: Path, annotations: Mapping[str, str], pods: int, indent: int | None) -> Path:
    with path.open("w") as file:
        file.write('{"apiVersion": "v1", "kind": "List", "items": [')
        for n in range(pods):
            meta = {"name": f"p{n}", "namespace": "ns", "uid": f"u{n}", "annotations": annotations}
            main = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1000"}}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta}
            pod["spec"] = {"containers": [main]}
            file.write(("," if n else "") + json.dumps(pod, indent=indent))
        file.write("]}")
    return path


@pytest.mark.parametrize("indent", [None, 4])
def test_a_long_text_is_cut_and_its_key_stays_and_devices_are_whole(
    tmp_path: Path, indent: int | None
) -> None:
    devices = "".join(f"GPU-{n},NVIDIA,1,100:" for n in range(1_000))
    notes = {
        "fallow.dev/keep": 'say "\\' * 50_000, HAMI: devices, "fallow.dev/slo": "p99",
    }  # fmt: skip
    path = write_dump(tmp_path / "dump.json", notes, 20, indent)
    rows = next(b.rows.to_pylist() for b in import_kubectl(path, "c", NOW) if b.table == "pod")
    assert len(rows) == 20
    for row in rows:
        stored = json.loads(row["annotations"])
        assert stored["fallow.dev/keep"].startswith("… (")
        assert stored["fallow.dev/slo"] == "p99"
        assert len(json.loads(row["devices"])) == 1_000


def test_many_long_lists_of_devices_are_unknown_and_never_a_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dump_file, "MOST_WHOLE", 100_000)
    devices = "".join(f"GPU-{n},NVIDIA,1,100:" for n in range(1_000))
    path = write_dump(tmp_path / "dump.json", {HAMI: devices}, 20, 4)
    rows = next(b.rows.to_pylist() for b in import_kubectl(path, "c", NOW) if b.table == "pod")
    counts = [len(json.loads(row["devices"] or "[]")) for row in rows]
    assert counts == [1_000] * 4 + [0] * 16


def write_notes(size: int) -> dict[str, str]:
    """Return annotations of so many bytes: one long text, and many that no text's bound cuts."""
    texts = {f"example.com/note-{n}": "x" * 4000 for n in range(size // 8000)}
    return {"fallow.dev/keep": "x" * (size // 2), "fallow.dev/slo": "p99", **texts}


def test_of_many_texts_the_short_ones_stay(tmp_path: Path) -> None:
    path = write_dump(tmp_path / "dump.json", write_notes(250_000), 20, None)
    document = json.loads(dump_file.read_cut(path))
    for item in document["items"]:
        kept = item["metadata"]["annotations"]
        assert (kept["fallow.dev/slo"], kept["fallow.dev/keep"]) == ("p99", "… (125,002 bytes)")
        assert 3 <= len(kept) <= 6
        assert item["spec"]["containers"][0]["name"] == "main"


TEXTS = st.text(st.sampled_from('ab"\\\n{}:,'), max_size=24)


def describe(text: re.Match[bytes]) -> bytes:
    return text[0] if len(text[0]) <= 20 else b'"\xe2\x80\xa6 (%d bytes)"' % len(text[0])


@given(st.lists(TEXTS, max_size=8), st.integers(1, 40), st.sampled_from([None, 1]))
def test_long_texts_alone_become_their_size_whatever_the_block(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], block: int, indent: int | None
) -> None:
    path = tmp_path_factory.mktemp("dump") / "dump.json"
    path.write_text(json.dumps({"items": texts, "kind": "List"}, indent=indent), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dump_file, "_BLOCK", block)
        patch.setattr(dump_file, "LONGEST", 20)
        cut = dump_file.read_cut(path)
    assert cut == re.sub(rb'"(?:[^"\\]|\\.)*"', describe, path.read_bytes())


def measure(*words: object) -> float:
    """Return the peak memory of a command in MiB."""
    ended = run_measured(words)
    assert ended.code == 0, ended.err
    return ended.peak_mib


@pytest.mark.parametrize(
    ("pods", "more", "size"),
    [
        (40, 400, 250_000),
        pytest.param(150, 1_500, 250_000, marks=pytest.mark.long),
        pytest.param(1_500, 15_000, 25_000, marks=pytest.mark.long),
    ],
)
def test_ten_times_the_pods_take_at_most_a_third_more_memory(
    tmp_path: Path, pods: int, more: int, size: int
) -> None:
    peaks, home = [], tmp_path / "home"
    for count in (pods, more):
        path = write_dump(tmp_path / "dump.json", write_notes(size), count, 4)
        peaks.append(measure("import", "kubectl", path, "--cluster", "c", "--home", home))
    assert peaks[1] <= min(700, 1.3 * peaks[0]), peaks
    assert measure("warehouse", "status", "--home", home) <= 350
