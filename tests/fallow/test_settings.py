"""Settings: what wins, where it came from, and what is said about a bad one."""

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.errors import SettingsError
from fallow.settings import Settings, load


def test_flags_win_over_environment_over_file_over_defaults(tmp_path: Path) -> None:
    file = tmp_path / "fallow.yaml"
    file.write_text("cluster: from-file\nidle:\n  threshold: 0.02\n  coverage: 0.8\n")
    loaded = load(
        file=file,
        environ={"FALLOW_IDLE__THRESHOLD": "0.03", "FALLOW_IDLE__MIN_DURATION": "2h"},
        flags={"idle.threshold": 0.04, "idle.max_gap": None},
    )
    assert loaded.settings.idle.threshold == 0.04
    assert loaded.settings.idle.coverage == 0.8
    assert loaded.settings.idle.min_duration == timedelta(hours=2)
    assert loaded.settings.cluster == "from-file"
    assert loaded.origin["idle.threshold"] == "--threshold"
    assert loaded.origin["idle.min_duration"] == "FALLOW_IDLE__MIN_DURATION"
    assert loaded.origin["idle.coverage"] == str(file)
    assert loaded.origin["idle.exit_samples"] == "default"


def test_environment_lists_and_mappings_are_read_as_yaml() -> None:
    loaded = load(
        environ={
            "FALLOW_EXPORTERS__TARGETS": "[http://a:9400/metrics, http://b:9400/metrics]",
            "FALLOW_PRICES__BY_MODEL": "{H100: 2.5}",
        }
    )
    assert loaded.settings.exporters.targets == ["http://a:9400/metrics", "http://b:9400/metrics"]
    assert str(loaded.settings.prices.by_model["H100"]) == "2.5"


def test_secrets_never_show_in_a_dump() -> None:
    loaded = load(environ={"FALLOW_PROMETHEUS__BEARER_TOKEN": "hunter2"})
    assert "hunter2" not in repr(loaded.settings)
    assert "hunter2" not in str(loaded.settings.model_dump(mode="json"))


BAD_FILES = [
    ("idel:\n  threshold: 1\n", "unknown setting 'idel' (from {file})", ", cluster,"),
    ("idle:\n  treshold: 1\n", "unknown setting 'idle.treshold' (from {file})", "threshold"),
    ("idle:\n  threshold: 1.5\n", "setting 'idle.threshold' (from {file})", "from 0 up to 1"),
    ("demand:\n  lead: 10h\n", "setting 'demand.lead' (from {file})", "legal: from 1m up to 6h"),
    ("spot:\n  survivors: 2\n", "setting 'spot.survivors' (from {file})", "legal: "),
    ("idle:\n  min_duration: soon\n", "'soon' is not a duration", "ms, s, m, h, d or w"),
    ("idle:\n  min_duration: 0s\n", "'0s' is not a duration", ""),
    ("warehouse:\n  raw_days: 0\n", "setting 'warehouse.raw_days' (from {file})", "greater"),
    ("prices:\n  usd_per_gpu_hour: -1\n", "setting 'prices.usd_per_gpu_hour'", "greater than 0"),
    ("exporters:\n  targets: {a: b}\n", "setting 'exporters.targets' (from {file})", "list"),
    ("dashboard:\n  office_hours: [20, 8]\n", "setting 'dashboard.office_hours'", "[8, 20]"),
    ("dashboard:\n  time_zone: Mars\n", "no time zone 'Mars'", "Europe/Berlin"),
    ("cluster: ''\n", "setting 'cluster' (from {file})", "at least 1 character"),
    ("- a\n- b\n", "{file} holds a list, not a mapping of settings", ""),
    ("a: [\n", "{file} is not YAML", ""),
    ("idle: 3\n", "setting 'idle' (from {file})", "dictionary"),
]


@pytest.mark.parametrize(("text", "message", "also"), BAD_FILES)
def test_a_bad_file_is_named_with_its_key_and_the_legal_answers(
    tmp_path: Path, text: str, message: str, also: str
) -> None:
    file = tmp_path / "fallow.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file=file, environ={})
    answer = str(caught.value)
    assert message.format(file=file) in answer
    assert also in answer
    assert "\n" not in answer
    assert caught.value.exit_code == 2


def test_a_missing_file_and_an_unknown_variable_are_errors(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read the settings file"):
        load(file=tmp_path / "absent.yaml", environ={})
    with pytest.raises(SettingsError, match=r"unknown setting 'clutser' \(from FALLOW_CLUTSER\)"):
        load(environ={"FALLOW_CLUTSER": "a"})


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*Settings.model_fields, "x", "url"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from([*Settings.model_fields, "nonsense"]), _JSON, max_size=4))
def test_any_mapping_is_either_settings_or_one_line_of_explanation(data: dict[str, object]) -> None:
    answer = ""
    try:
        load(environ={}, flags=data)
    except SettingsError as error:
        answer = str(error)
    assert "\n" not in answer


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"idle.threshold": 0.08}, "idle.threshold 0.08 is above ledger.idle_threshold 0.05"),
        ({"ledger.startup": "30m"}, "idle.startup_grace 15m is shorter than ledger.startup 30m"),
    ],
)
def test_verdicts_cannot_be_set_to_call_idle_what_the_ledger_does_not(
    flags: dict[str, object], says: str
) -> None:
    with pytest.raises(SettingsError, match=says):
        load(environ={}, flags=flags)
