"""The tables between the rooms, the models, the plugins and the errors."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from fallow import errors, tables
from fallow.gpu_models import find_gpu_model, get_model_name, read_gpu_models
from fallow.models import Subject, compute_finding_id
from fallow.plugins import PLUGIN_GROUPS, find_installed, load
from fallow.tables import Batch

MOMENT = datetime(2026, 11, 20, tzinfo=UTC).replace(tzinfo=None)


@pytest.mark.parametrize("table", tables.list_table_names())
def test_every_table_has_a_key_distinct_columns_and_an_arrow_type_each(table: str) -> None:
    names = [c.name for c in tables.list_columns(table)]
    assert len(names) == len(set(names))
    assert tables.get_key(table)
    assert len(tables.get_schema(table)) == len(names)


def test_absent_columns_become_null_and_never_zero() -> None:
    batch = Batch.of("sample", {"cluster": ["a"], "ts": [MOMENT], "device": ["GPU-1"]})
    assert batch.rows.num_rows == 1
    assert batch.rows["gpu_util_pct"].to_pylist() == [None]


def test_a_batch_refuses_columns_values_and_keys_that_are_not_the_tables() -> None:
    good = {"cluster": ["a"], "ts": [MOMENT], "device": ["GPU-1"]}
    with pytest.raises(errors.SourceError, match="no columns \\['utilisation'\\]"):
        Batch.of("sample", {**good, "utilisation": [1]})
    with pytest.raises(errors.SourceError, match="'gpu_util_pct' of table 'sample' wants float"):
        Batch.of("sample", {**good, "gpu_util_pct": ["much"]})
    with pytest.raises(errors.SourceError, match="have no 'device'"):
        Batch.of("sample", {**good, "device": [None]})
    with pytest.raises(errors.SourceError, match="do not fit it"):
        Batch("sample", pa.table(good))


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA-H100-80GB-HBM3", "H100"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA-A100-SXM4-80GB-MIG-1g.10gb", "A100-80GB"),
        ("Tesla T4", "T4"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L4", "L4"),
        ("V100M32", "V100-32GB"),
        ("Tesla V100-SXM2-16GB", "V100-16GB"),
        ("GH100x", None),
        ("", None),
    ],
)
def test_driver_and_label_spellings_name_one_model(text: str, model: str | None) -> None:
    found = find_gpu_model(text)
    assert (found.gpu_model if found else None) == model


def test_an_unknown_model_has_one_name_as_well() -> None:
    assert get_model_name("Acme Quark 7") == get_model_name(" Acme-Quark-7 ") == "Acme-Quark-7"
    assert get_model_name("NVIDIA-H100-80GB-HBM3") == "H100"
    assert get_model_name(" ") is get_model_name(None) is None


def test_model_watts_are_ordered_idle_below_context_below_tdp() -> None:
    for model in read_gpu_models():
        assert 0 < model.idle_bare_w < model.idle_context_w < model.tdp_w, model.gpu_model


def test_a_finding_keeps_its_id_and_another_start_is_another_finding() -> None:
    subject = Subject("c", "ns", "StatefulSet", "notebook")
    start = datetime(2026, 11, 20, tzinfo=UTC)
    one = compute_finding_id("idle", "idle_notebook", subject, start)
    assert one == compute_finding_id("idle", "idle_notebook", subject, start)
    assert one != compute_finding_id("idle", "idle_notebook", subject, start.replace(hour=1))
    assert one != compute_finding_id(
        "idle", "idle_notebook", Subject("c", "n", "sS", "notebook"), start
    )


@pytest.mark.parametrize("seam", PLUGIN_GROUPS)
def test_every_installed_plugin_loads(seam: str) -> None:
    for name in find_installed(seam):
        assert isinstance(load(seam, name), type)


def test_an_unknown_plugin_is_refused_with_those_installed() -> None:
    with pytest.raises(errors.UsageError, match=r"no collector called 'dcgmm' \(hint: installed"):
        load("collectors", "dcgmm")


def test_exit_codes_are_the_contract() -> None:
    codes = {
        errors.FallowError: 1,
        errors.UsageError: 2,
        errors.SettingsError: 2,
        errors.RefusedError: 3,
        errors.SourceError: 1,
        errors.AuthError: 1,
        errors.WarehouseError: 1,
        errors.TemporaryError: 75,
    }
    assert {kind: kind.exit_code for kind in codes} == codes
    assert errors.FINDINGS_EXIST == 4
