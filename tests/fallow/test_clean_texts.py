"""Every text is looked at before it is stored: identities are whole or refused, others escaped."""

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow import tables
from fallow.clean_texts import UNKNOWN, check_batches, list_text_columns
from fallow.rejections import MOST_LISTED
from fallow.resources import read_table
from fallow.tables import Batch
from warehouse.storage import get_storage

AT = datetime(2026, 11, 20, 10, tzinfo=UTC)
CONTROL = ["\x00", "\x07", "\x1b[31m", "\x7f", "\x9b", "a\x00'); DROP"]
HAMI = "hami.io/vgpu-devices-allocated"


def pod(name: str = "p", **columns: Any) -> dict[str, Any]:
    return {"cluster": "c", "uid": f"uid-{name}", "namespace": "ns", "pod": name, **columns}


def check(table: str, *rows: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the rows that stay and the rejections."""
    batch = Batch(table, pa.Table.from_pylist([*rows], schema=tables.get_schema(table)))
    first, *rest = check_batches([batch], cluster="c", source="test", at=AT)
    return first.rows.to_pylist(), [row for part in rest for row in part.rows.to_pylist()]


def test_each_text_column_says_what_its_texts_are() -> None:
    for table in tables.list_table_names():
        if get_storage(table).mode != "derived":
            list_text_columns(table)
    kinds = {row["content"] for row in read_table("fallow", "text_columns.csv")}
    assert kinds == {"identity", "holder", "optional", "text", "identities", "texts", "own"}


@pytest.mark.parametrize("column", ["uid", "pod", "namespace", "node", "team", "workload"])
@pytest.mark.parametrize("text", [*CONTROL, "line\nbreak", "t\tab", "x" * 400])
def test_an_unclean_identity_is_refused_with_its_row_alone(column: str, text: str) -> None:
    honest = [pod(f"p{n}") for n in range(3)]
    rows, rejected = check("pod", honest[0], pod("bad") | {column: text}, *honest[1:])
    assert [row["pod"] for row in rows] == ["p0", "p1", "p2"]
    (row,) = rejected
    assert (row["field"], row["kind"], row["count"]) == (column, "pod", 1)
    assert not set("".join(str(v) for v in row.values())) & set("\x00\x07\x1b\x7f\x9b\n\t")


@pytest.mark.parametrize(
    ("table", "column", "unknown"),
    [
        *(("sample", name, UNKNOWN) for name in ("pod", "namespace", "node")),
        *(("holding", name, UNKNOWN) for name in ("pod", "namespace")),
        *(("sample", name, None) for name in ("container", "parent")),
        ("holding", "container", None),
    ],
)
@pytest.mark.parametrize("text", ["line\nbreak", "x" * 254])
def test_a_device_stays_whatever_its_holder_is_called(
    table: str, column: str, unknown: str | None, text: str
) -> None:
    row = {"cluster": "c", "ts": AT.replace(tzinfo=None), "device": "GPU-1", "pod": "p"}
    (stored,), (rejected,) = check(table, {"namespace": "ns", **row, column: text})
    assert stored["device"] == "GPU-1"
    assert stored[column] == unknown
    assert (rejected["field"], rejected["kind"]) == (column, table)
    assert check(table, stored) == ([stored], []), "it is clean"
    longest = {"namespace": "ns", **row, column: "x" * 253}
    assert check(table, longest)[0][0][column] == "x" * 253


@pytest.mark.parametrize("text", [*CONTROL, "x" * 400])
def test_a_document_of_devices_is_whole_or_unknown(text: str) -> None:
    devices = json.dumps([{"device": "GPU-1"}, {"device": text}])
    (row,), (rejected,) = check("pod", pod(devices=devices))
    assert row["devices"] is None
    assert (rejected["field"], rejected["name"]) == ("devices", "p")
    clean = json.dumps([{"device": f"GPU-{n}"} for n in range(64)])
    assert check("pod", pod(devices=clean)) == ([{**row, "devices": clean}], [])


def test_an_annotation_stays_by_its_key_whatever_its_text() -> None:
    notes = {"fallow.dev/keep": "a\x00b", HAMI: "x" * 300_000, "line": "a\n\tb", "k\x00": "v"}
    (row,), (rejected,) = check("pod", pod(annotations=json.dumps(notes)))
    stored = json.loads(row["annotations"])
    assert stored["fallow.dev/keep"] == "a\\x00b"
    assert stored["line"] == "a\n\tb"
    assert stored[HAMI].endswith("… (300,000 characters)")
    assert (len(stored), len(row["annotations"]) < 5_000) == (3, True)
    assert rejected["field"] == "annotations"


def test_free_text_is_escaped_and_cut_and_keeps_its_lines() -> None:
    event = {"cluster": "c", "uid": "e", "name": "p", "message": "a\n\tb\x00" + "é" * 5_000}
    event["ts"] = AT.replace(tzinfo=None)  # type: ignore[assignment]
    (row,), _ = check("event", event)
    assert row["message"].startswith("a\n\tb\\x00éé")
    assert row["message"].endswith("… (5,005 characters)")
    assert len(row["message"].encode()) <= 4096
    assert check("event", row) == ([row], [])


def test_a_flood_of_bad_samples_is_counted_and_few_are_listed() -> None:
    rows = [
        {"cluster": "c", "ts": AT.replace(tzinfo=None), "device": f"GPU-{n}\x00"}
        for n in range(3 * MOST_LISTED)
    ]
    stored, rejected = check("sample", *rows)
    assert stored == []
    assert len(rejected) <= MOST_LISTED + 1
    assert sum(row["count"] for row in rejected) == 3 * MOST_LISTED


LEAF = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from([*CONTROL, "x" * 500])
TEXTS = [c for c in tables.list_columns("pod") if c.type == "string" and c.name != "cluster"]


@given(st.lists(st.tuples(st.sampled_from(TEXTS), LEAF), max_size=8))
def test_honest_rows_between_unclean_ones_are_equal_to_the_byte(garbage: Any) -> None:
    honest = [
        pod(f"p{n}", labels='{"é":"\\u00e9"}', devices='["GPU-1"]') for n in range(len(garbage) + 1)
    ]
    mixed = honest[:1]
    for n, (column, text) in enumerate(garbage, 1):
        mixed += [{**pod(f"bad{n}"), column.name: text}, honest[n]]
    rows, _ = check("pod", *mixed)
    expected, _ = check("pod", *honest)
    names = {row["pod"] for row in expected}
    assert [
        row for row in rows if row["pod"] in names and row["uid"].startswith("uid-p")
    ] == expected
