"""Environment defaults: only for pods that ask, only what is not set, never in a pod's way."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from actions.hints.admission import LABEL, build_expression, build_manifests, read_defaults
from fallow.precision_lines import read_framework_lines
from tools.admission import render_page

ROOT = Path(__file__).resolve().parents[3]


def of_kind(kind: str) -> list[dict[str, Any]]:
    return [m for m in build_manifests() if m["kind"] == kind]


def test_the_file_is_what_the_table_says() -> None:
    written = (ROOT / "deploy" / "admission" / "precision.yaml").read_text()
    assert written == render_page(), "run: python -m tools.admission deploy/admission"
    assert [*yaml.safe_load_all(written)] == build_manifests()


@pytest.mark.parametrize(
    "policy", of_kind("MutatingAdmissionPolicy"), ids=lambda p: p["metadata"]["name"]
)
def test_a_policy_touches_only_new_pods_whose_owner_asked_and_never_stops_one(
    policy: dict[str, Any],
) -> None:
    spec = policy["spec"]
    name = policy["metadata"]["name"].removeprefix("fallow-precision-")
    assert spec["matchConstraints"]["objectSelector"] == {"matchLabels": {LABEL: name}}
    (rule,) = spec["matchConstraints"]["resourceRules"]
    assert (rule["operations"], rule["resources"]) == (["CREATE"], ["pods"])
    assert spec["failurePolicy"] == "Ignore"
    (binding,) = [
        b
        for b in of_kind("MutatingAdmissionPolicyBinding")
        if b["spec"]["policyName"] == policy["metadata"]["name"]
    ]
    (excluded,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert "kube-system" in excluded["values"]


@pytest.mark.parametrize("row", read_defaults(), ids=lambda r: f"{r.format}-{r.framework}")
def test_an_expression_closes_what_it_opens_and_spares_what_is_set(row: Any) -> None:
    text = build_expression(row)
    for opened, closed in ("()", "{}", "[]"):
        assert text.count(opened) == text.count(closed)
    assert f"!(has(c.env) && c.env.exists(e, e.name == '{row.variable}'))" in text
    assert "startsWith('nvidia.com/')" in text
    assert re.fullmatch(r"[A-Z][A-Z0-9_]*", row.variable)
    assert "'" not in row.value


def test_every_format_is_one_that_hints_name_and_no_variable_is_set_twice() -> None:
    assert {row.format.upper() for row in read_defaults()} <= set(read_framework_lines())
    pairs = [(row.format, row.variable) for row in read_defaults()]
    assert len(set(pairs)) == len(pairs)
    text = (ROOT / "actions" / "hints" / "admission.csv").read_text()
    assert all(row["source"] for row in csv.DictReader(text.splitlines()))
