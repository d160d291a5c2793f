"""The actor may write what policies name, and nothing else; nobody else is bound."""

import csv
import json
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from actions.admission.manifests import REMAINDER
from actions.executors import load_executors
from actions.hints.admission import build_manifests
from actions.policy.parser import read_policies
from fallow.settings import Settings
from runtime.operations.acting.admission_page import write_page
from simulator.kube.policy_rules import find_invalid_policy_fields
from tests.actions.admission.evaluation import Object, refusals

FOLDER = Path(__file__).parent
CASES = [*csv.DictReader((FOLDER / "cases.csv").read_text().splitlines())]
OLD = ("UPDATE", "DELETE")
"""Operations whose request has the object as it was."""
USERS = {
    "actor": "system:serviceaccount:fallow:fallow-actor",
    "other": "system:serviceaccount:lab:fallow-actor",
    "person": "ada@example.com",
}


@cache
def documents(site: str) -> list[Object]:
    settings = Settings(actions={"canary": {"image": "pause"}})
    paths = [FOLDER / f"{site}.yaml"] if site != "none" else []
    policies = read_policies(paths, interval=timedelta(seconds=30)) if paths else ()
    return [*yaml.safe_load_all(write_page(settings, policies, ()))]


def request(user: str, operation: str, resource: str, place: str) -> Object:
    """Return the request of an AdmissionReview as the server gives it: without empty fields."""
    whole, _, part = resource.partition("/")
    name, _, group = whole.partition(".")
    namespace, _, object_name = place.partition("/")
    fields = {
        "operation": operation,
        "subResource": part,
        "namespace": namespace,
        "name": object_name,
    }
    return {
        "userInfo": {"username": user, "groups": ["system:authenticated"]},
        "resource": {"group": group, "version": "v1", "resource": name},
        **{key: text for key, text in fields.items() if text},
    }


def whole(text: str) -> Object:
    """Return an object of a row: every object has metadata."""
    return {"metadata": {}, **json.loads(text or "{}")}


@pytest.mark.parametrize("row", CASES, ids=lambda row: row["case"])
def test_a_request_is_admitted_or_refused_by_role_and_policy(row: dict[str, str]) -> None:
    namespace, _, _ = row["place"].partition("/")
    labels = dict(text.split("=") for text in row["namespace_labels"].split())
    meta: Object = {"name": namespace, **({"labels": labels} if labels else {})}
    refused = refusals(
        documents(row["site"]),
        request(USERS[row["user"]], row["operation"], row["resource"], row["place"]),
        object=None if row["operation"] == "DELETE" else whole(row["after"]),
        oldObject=whole(row["before"]) if row["operation"] in OLD else None,
        namespaceObject={"metadata": meta} if namespace else None,
    )
    assert sorted(refused) == row["refused_by"].split()
    for text in refused.values():
        assert f"may not {row['operation']} {row['resource']} {row['place']}: " in text
    # Whichever policy's message the server shows, it names the same missing right.
    assert len(set(refused.values())) <= 1


def test_a_refusal_names_the_policies_of_the_role() -> None:
    actor = request(USERS["actor"], "UPDATE", "deployments.apps/scale", "lab/x")
    objects: dict[str, Any] = {"namespaceObject": {"metadata": {"name": "lab"}}}
    scale = whole("")
    texts = {*refusals(documents("site"), actor, object=scale, oldObject=scale, **objects).values()}
    assert texts == {
        (
            "Fallow may not UPDATE deployments.apps/scale lab/x: not named by "
            f"actions.canary, {FOLDER / 'site.yaml'}:1; roles that have it: fallow-act-replicas, "
            "fallow-act-scale, fallow-act-warm-pool, fallow-canary"
        )
    }
    evict = request(USERS["actor"], "CREATE", "pods/eviction", "lab/x")
    refused = refusals(documents("none"), evict, object={}, **objects)
    assert (
        "Fallow may not CREATE pods/eviction lab/x: no policy uses this right; roles that have it: "
        in refused["fallow-act-evict"]
    )


def refuse_policy(document: Object) -> list[str]:
    """Return the fields of a policy that a real server refuses; CEL's own engine takes them."""
    return [w.field for w in find_invalid_policy_fields(document["kind"], document["spec"])]


@pytest.mark.parametrize("site", ["site", "none"])
def test_no_rule_of_a_real_server_refuses_the_policies(site: str) -> None:
    assert [why for d in documents(site) for why in refuse_policy(d)] == []
    assert [why for d in build_manifests() for why in refuse_policy(d)] == []


def test_the_rules_refuse_what_a_real_server_refused() -> None:
    (policy, *_) = (d for d in documents("none") if d["metadata"]["name"] == REMAINDER)
    broken = json.loads(json.dumps(policy))
    broken["spec"]["variables"][0]["name"] = "namespace"
    broken["spec"]["matchConstraints"]["resourceRules"][0]["resources"] = ["*", "*/*"]
    assert refuse_policy(broken) == [
        "spec.variables[0].name",
        "spec.matchConstraints.resourceRules[0].resources",
    ]


def test_every_role_that_writes_has_a_policy_that_denies_and_cannot_be_skipped() -> None:
    pages = documents("site")
    policies = {d["metadata"]["name"]: d["spec"] for d in pages if "Binding" not in d["kind"]}
    bindings = {d["spec"]["policyName"]: d["spec"] for d in pages if "Binding" in d["kind"]}
    readers = {"fallow-act-jupyterhub"}
    assert {f"fallow-act-{name}" for name in load_executors()} - readers < set(policies)
    assert set(policies) == set(bindings)
    for name, spec in policies.items():
        assert spec["failurePolicy"] == "Fail"
        assert bindings[name] == {"policyName": name, "validationActions": ["Deny"]}
        assert all(
            rule["operations"] == ["*"] for rule in spec["matchConstraints"]["resourceRules"]
        )
