"""Reading policies: a table of bad files and what is said about each, and what good ones mean."""

import copy
import json
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from actions.policy import keys
from actions.policy.capabilities import Capabilities
from actions.policy.model import (
    ActionBudget,
    Approvals,
    Policy,
    PolicyAmount,
    RecurringWindow,
    ReversalLimit,
    Stage,
)
from actions.policy.parser import parse_policies, read_policies
from fallow.errors import UsageError

HOUR = timedelta(hours=1)
DOCS = Path(__file__).resolve().parents[3] / "docs" / "policies.md"


class Reclaim:
    capabilities = frozenset({"suspend"})
    verbs = frozenset({"stop", "suspend", "abort"})


class Scale:
    capabilities = frozenset({"scale"})
    verbs = frozenset({"scale to zero"})


class Quota:
    capabilities = frozenset({"quota"})
    verbs = frozenset({"rebalance-quota"})


CAN = Capabilities.of((Reclaim, Scale, Quota))
LEAST = "name: p\nstages: [observe]\n"


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    path = tmp_path / "p.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    found, wrong = parse_policies([path], capabilities=CAN)
    assert bool(found) != bool(wrong)
    return [str(problem).replace(f"{tmp_path}/", "") for problem in wrong]


def good(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "p.yaml"
    path.write_text(text)
    (policy,) = read_policies([path], capabilities=CAN)
    return policy


ODD: list[tuple[str, str | bytes, str]] = [
    ("nothing", "", "p.yaml: holds no policy"),
    ("a tab", LEAST + "match:\n\tkind: a\n", "p.yaml:4: is not YAML: a tab; indent with spaces"),
    ("not UTF-8", b"name: p\nstages: [\xff]\n", "p.yaml:2: is not UTF-8"),
    ("control characters", LEAST + "description: a\x07b\n", "p.yaml:3: is not YAML"),
    ("a deep nest", "name: " + "[" * 5000, "p.yaml:1: is nested deeper than 16 levels"),
    ("a huge file", "# " + "x" * 300_000, "300,002 bytes; legal: 262,144 at most"),
    ("a long number", LEAST + "concurrent: " + "9" * 9999, "is no number in plain digits"),
]


def table() -> list[tuple[str, str | bytes, str]]:
    """Return the bad files of `bad.txt`."""
    blocks = (Path(__file__).parent / "bad.txt").read_text(encoding="utf-8").split("=== ")[1:]
    found: list[tuple[str, str | bytes, str]] = []
    for block in blocks:
        title, _, rest = block.partition("\n")
        text, _, said = rest.rpartition(">>> ")
        found.append((title, text, said.rstrip("\n")))
    return found


BAD = [*ODD, *table()]
SEEN_BY_THE_SCHEMA = {
    "no name",
    "no stages",
    "an unknown key",
    "an unknown key inside",
    "a mode",
    "a duration without unit",
    "a stage",
    "a number too large",
    "reversals as a number",
    "a blackout without a name",
}


@pytest.mark.parametrize(("text", "said"), [b[1:] for b in BAD], ids=[b[0] for b in BAD])
def test_a_bad_file_is_refused_with_its_line_the_key_and_what_is_legal(
    tmp_path: Path, text: str | bytes, said: str
) -> None:
    found = problems(tmp_path, text)
    assert any(said in line for line in found), found
    assert all("\n" not in line and line.startswith("p.yaml") for line in found)


def test_all_that_is_wrong_is_told_at_once_and_read_tells_the_first(tmp_path: Path) -> None:
    text = "name: A\nmode: x\nmatch: {kid: a, gpus: -1}\nstages: [run]\n"
    assert [line.split(":")[1] for line in problems(tmp_path, text)] == ["1", "2", "3", "3", "4"]
    with pytest.raises(UsageError) as refused:
        read_policies([tmp_path / "p.yaml"], capabilities=CAN)
    assert "p.yaml:1: name: 'A'" in refused.value.message
    assert refused.value.hint == "4 more; fallow policy check lists all"


def test_every_wrong_item_of_a_list_is_named_and_the_lines_are_in_order(tmp_path: Path) -> None:
    text = "mode: x\nmatch:\n  kind:\n    - 12\n    - idle_*\n    - no\nname: p\n"
    found = problems(tmp_path, text)
    assert [line.partition("; legal")[0] for line in found] == [
        "p.yaml:1: stages: is missing",
        "p.yaml:1: mode: 'x' is not legal",
        "p.yaml:4: match.kind: YAML reads '12' as a number: quote it",
        "p.yaml:6: match.kind: YAML reads 'no' as true or false: quote it",
    ]


def test_two_policies_of_one_name_are_refused_wherever_they_stand(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(LEAST + "---\n" + LEAST)
    (tmp_path / "b.yml").write_text("\n" + LEAST)
    _, wrong = parse_policies([tmp_path], capabilities=CAN)
    assert [(Path(p.file).name, p.line) for p in wrong] == [("a.yaml", 4), ("b.yml", 2)]
    assert "a.yaml:1" in wrong[0].text


def test_a_folder_is_read_by_name_and_one_without_policies_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a folder without \.yaml"):
        read_policies([tmp_path])
    for name in ("b", "a"):
        (tmp_path / f"{name}.yaml").write_text(LEAST.replace("p\n", f"{name}\n", 1))
    (tmp_path / "README.md").write_text("words")
    assert [p.name for p in read_policies([tmp_path], capabilities=CAN)] == ["a", "b"]
    with pytest.raises(UsageError, match=r"gone\.yaml: cannot be read: no such file"):
        read_policies([tmp_path / "gone.yaml"])


def test_a_file_may_hold_several_policies(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("---\n" + LEAST + "---\n# nothing\n---\n" + LEAST.replace("name: p", "name: q"))
    assert [(p.name, p.source) for p in read_policies([path])] == [
        ("p", f"{path}:2"),
        ("q", f"{path}:7"),
    ]


def test_the_least_policy_watches_and_cannot_act(tmp_path: Path) -> None:
    policy = good(tmp_path, LEAST)
    assert msgspec.structs.replace(policy, source="") == Policy("p")
    assert policy.mode == "notify"
    assert policy.allow.namespaces == ()


def test_every_key_means_what_it_says(tmp_path: Path) -> None:
    text = """\
name: all-keys
description: every key once
mode: enforce
match:
  analyzer: idle
  kind: [idle_*, x]
  labels: {app: "web-*", tier: [a, b]}
  confidence: 0.9
  min_duration: 8h
  usd_per_day: 2.50
allow: {namespaces: [], kinds: Notebook, production: true, cluster_objects: true}
stages:
  - observe
  - notify
  - grace: 1d
  - snapshot: {what: [manifest, home], required: false}
  - act: {do: [suspend, scale], with: {floor: 2}}
budgets:
  - {workloads: 5%, gpus: 64, owners: 3, usd_per_hour: 12.5, per: 1h, counts: all}
  - {workloads: 0, each: owner, schedule: "0 9 * * 1-5", duration: 8h, timezone: Europe/Berlin}
concurrent: 7
blackouts:
  - {name: year's end, from: 2026-12-24, to: 2026-12-26, timezone: Europe/Berlin}
  - {name: nights, schedule: "@daily", duration: 6h}
  - {name: launch, from: "2026-12-01T09:00-05:00"}
act_window: {schedule: "0 20 * * *", duration: 9h, timezone: Europe/Berlin}
approvals: {when: first 10, four_eyes: true}
on_pressure: true
on_benefit: true
min_age: 0s
checkpoint_age: 90m
cool_down: 12h
reversals: {rate: 2.5%, within: 48h}
max_resources: 30
"""
    policy = good(tmp_path, text)
    assert policy.match.kind == ("idle_*", "x")
    assert policy.match.labels == {"app": ("web-*",), "tier": ("a", "b")}
    assert (policy.match.confidence, policy.match.usd_per_day) == (0.9, Decimal("2.50"))
    assert (policy.allow.kinds, policy.allow.production) == (("Notebook",), True)
    assert policy.stages[2:] == (
        Stage("grace", wait=24 * HOUR),
        Stage("snapshot", parts=("manifest", "home"), required=False),
        Stage(
            "act",
            do=("suspend", "scale"),
            verbs=("abort", "scale to zero", "stop", "suspend"),
            parameters={"floor": 2},
        ),
    )
    assert policy.budgets == (
        ActionBudget(
            workloads=PolicyAmount(Decimal("0.05"), share=True),
            gpus=PolicyAmount(Decimal(64)),
            owners=PolicyAmount(Decimal(3)),
            usd_per_hour=PolicyAmount(Decimal("12.5")),
            per=HOUR,
            counts="all",
        ),
        ActionBudget(
            workloads=PolicyAmount(Decimal(0)),
            each="owner",
            window=RecurringWindow("0 9 * * 1-5", 8 * HOUR, "Europe/Berlin"),
        ),
    )
    assert (policy.concurrent, policy.match.min_duration) == (7, 8 * HOUR)
    assert policy.act_window == RecurringWindow("0 20 * * *", 9 * HOUR, "Europe/Berlin")
    year, nights, launch = policy.blackouts
    assert year.start == datetime(2026, 12, 23, 23, tzinfo=UTC)
    assert year.end == datetime(2026, 12, 26, 23, tzinfo=UTC)
    assert nights.window == RecurringWindow("@daily", 6 * HOUR)
    assert (launch.start, launch.end) == (datetime(2026, 12, 1, 14, tzinfo=UTC), None)
    assert policy.approvals == Approvals("first", 10, four_eyes=True)
    assert (policy.on_pressure, policy.on_benefit) == (True, True)
    ages = (policy.min_age, policy.cool_down, policy.checkpoint_age)
    assert ages == (timedelta(0), 12 * HOUR, 1.5 * HOUR)
    assert policy.reversals == ReversalLimit(0.025, 48 * HOUR)
    assert policy.max_resources == PolicyAmount(Decimal(30))
    assert {name.partition(".")[0].partition("[")[0] for name, _ in keys.list_keys()} == set(
        yaml.safe_load(text)
    )


def test_a_capability_stands_for_the_verbs_of_the_executors_that_have_it() -> None:
    assert CAN.verbs(["suspend", "rebalance-quota"]) == (
        *("abort", "rebalance-quota", "stop", "suspend"),
    )
    assert Capabilities.of(()).verbs(["suspend"]) == ()


def test_trust_in_a_policy_ends_with_its_text_and_not_with_its_place(tmp_path: Path) -> None:
    first = good(tmp_path, LEAST)
    assert good(tmp_path, "# moved\n\n" + LEAST).fingerprint == first.fingerprint
    assert good(tmp_path, LEAST + "cool_down: 7h\n").fingerprint != first.fingerprint
    assert msgspec.json.decode(msgspec.json.encode(first), type=Policy) == first


def test_every_key_is_in_the_reference_as_the_code_tells_it() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert keys.render_table() in page, "run: python -m tools.reference docs"
    for name, key in keys.list_keys():
        assert key.description, name
        assert keys.describe_default(key), name


WRITTEN: dict[str, Any] = {
    "name": "p",
    "match": {},
    "allow": {},
    "stages": ["notify", {"grace": "1h"}, {"snapshot": {}}, {"act": {"do": "suspend"}}],
    "budgets": [{"workloads": 1, "schedule": "@daily", "duration": "1h"}],
    "blackouts": [{"name": "nights", "schedule": "@daily", "duration": "1h"}],
    "act_window": {"schedule": "@daily", "duration": "1h"},
    "approvals": {"when": "always"},
    "reversals": {},
}
DEFAULTS = [
    (name, match.group(1))
    for name, key in keys.list_keys()
    if (match := re.match("`(.+?)`", keys.describe_default(key)))
]


@pytest.mark.parametrize(("name", "default"), DEFAULTS)
def test_a_key_with_its_documented_default_changes_nothing(
    tmp_path: Path, name: str, default: str
) -> None:
    without = good(tmp_path, yaml.safe_dump(WRITTEN))
    written = copy.deepcopy(WRITTEN)
    section: Any = written
    *path, last = name.replace("[]", "").split(".")
    for part in path:
        section = section[part]
        if part == "stages":
            section = {k: v for item in section[1:] for k, v in item.items()}
        elif isinstance(section, list):
            section = section[0]
    assert last not in section
    section[last] = yaml.safe_load(default)
    assert good(tmp_path, yaml.safe_dump(written)) == without


def test_the_schema_for_editors_names_every_key_and_is_json() -> None:
    told = json.loads(json.dumps(keys.build_schema()))
    assert set(told["properties"]) == set(keys.PolicyKeys.keys())
    assert told["additionalProperties"] is False
    assert told["required"] == ["name", "stages"]
    assert "schedule" in told["properties"]["budgets"]["items"]["properties"]
    validator = import_module("jsonschema").Draft202012Validator(told)
    for path in sorted((DOCS.parents[1] / "policies").glob("*.yaml")):
        assert not list(validator.iter_errors(yaml.safe_load(path.read_text(encoding="utf-8"))))
    for title, text, _ in table():
        if title in SEEN_BY_THE_SCHEMA:
            assert list(validator.iter_errors(yaml.safe_load(text))), title


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(tmp_path_factory: Any, raw: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "p.yaml"
    path.write_bytes(raw)
    found, wrong = parse_policies([path], capabilities=CAN)
    assert found or wrong


_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates()
)
_trees = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from([n.rpartition(".")[2] for n, _ in keys.list_keys()]), _scalars
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(_trees)
def test_no_document_breaks_the_reader(tmp_path_factory: Any, tree: Any) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "p.yaml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True), encoding="utf-8")
    _, wrong = parse_policies([path], capabilities=CAN)
    assert all("\n" not in str(problem) for problem in wrong)
