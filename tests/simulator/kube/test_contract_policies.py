"""The server's own rules of admission policies: `policy_rules.csv` on the stub, a real one's."""

import itertools
from typing import Any

import pytest

from tests.simulator.kube.conftest import Kube, Object

ROOT = "/apis/admissionregistration.k8s.io/v1"
_numbers = itertools.count()


def policy(rule: Object, **spec: Any) -> Object:
    """Return a policy that is right but for what is given."""
    whole = {
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["UPDATE"],
        "resources": ["deployments"], **rule,
    }  # fmt: skip
    return {
        "metadata": {"name": f"p{next(_numbers)}"},
        "spec": {
            "matchConstraints": {"resourceRules": [whole]},
            "validations": [{"expression": "true"}],
            **spec,
        },
    }


def variable(name: str) -> Object:
    return {"variables": [{"name": name, "expression": "1"}]}


RULES = "spec.matchConstraints.resourceRules[0]"
WRONG: list[tuple[Object, Object, list[str]]] = [
    ({}, variable("namespace"), ["spec.variables[0].name"]),
    ({}, variable("in"), ["spec.variables[0].name"]),
    ({}, variable("a-b"), ["spec.variables[0].name"]),
    ({"resources": ["*", "*/*"]}, {}, [f"{RULES}.resources"]),
    ({"resources": ["*/*", "pods/eviction"]}, {}, [f"{RULES}.resources"]),
    ({"resources": ["*", "pods"]}, {}, [f"{RULES}.resources"]),
    ({"apiGroups": ["*", "apps"]}, {}, [f"{RULES}.apiGroups"]),
    ({"apiVersions": ["*", "v1"]}, {}, [f"{RULES}.apiVersions"]),
    ({"operations": ["*", "CREATE"]}, {}, [f"{RULES}.operations"]),
    ({"operations": ["PATCH"]}, {}, [f"{RULES}.operations[0]"]),
    ({"operations": []}, {}, [f"{RULES}.operations"]),
    ({}, {"failurePolicy": "Perhaps"}, ["spec.failurePolicy"]),
    (
        {"resources": ["*", "*/*"]},
        variable("namespace"),
        [f"{RULES}.resources", "spec.variables[0].name"],
    ),
]
RIGHT: list[tuple[Object, Object]] = [
    ({}, {}),
    ({}, variable("space")),
    ({}, variable("namespace_")),
    ({"resources": ["*/*"]}, {}),
    ({"resources": ["*"]}, {}),
    ({"resources": ["*", "pods/eviction"]}, {}),
    ({"resources": ["pods", "pods/eviction"]}, {}),
    ({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}, {}),
    ({"operations": ["CREATE", "UPDATE", "DELETE", "CONNECT"]}, {}),
    ({}, {"failurePolicy": "Fail"}),
]


@pytest.mark.parametrize(("rule", "spec", "fields"), WRONG)
def test_a_policy_that_breaks_a_rule_of_the_server_is_refused(
    kube: Kube, rule: Object, spec: Object, fields: list[str]
) -> None:
    answer = kube.ask("POST", f"{ROOT}/validatingadmissionpolicies", policy(rule, **spec))
    assert answer.code == 422, answer.body
    assert sorted(cause["field"] for cause in answer.body["details"]["causes"]) == sorted(fields)


@pytest.mark.parametrize(("rule", "spec"), RIGHT)
def test_a_policy_within_the_rules_is_accepted(kube: Kube, rule: Object, spec: Object) -> None:
    document = policy(rule, **spec)
    answer = kube.ask("POST", f"{ROOT}/validatingadmissionpolicies", document)
    assert answer.code == 201, answer.body
    path = f"{ROOT}/validatingadmissionpolicies/{document['metadata']['name']}"
    assert kube.ask("DELETE", path).code == 200


def test_the_words_of_a_refusal_name_the_rule(kube: Kube) -> None:
    document = policy({"resources": ["*", "*/*"]}, **variable("namespace"))
    answer = kube.ask("POST", f"{ROOT}/validatingadmissionpolicies", document)
    assert "if '*/*' is present, must not specify other resources" in answer.body["message"]
    assert "must be a valid CEL identifier" in answer.body["message"]


@pytest.mark.parametrize(
    ("actions", "code"),
    [(["Deny"], 201), (["Warn", "Audit"], 201), (["Refuse"], 422), (["Deny", "Warn"], 422)],
)
def test_the_actions_of_a_binding(kube: Kube, actions: list[str], code: int) -> None:
    spec = {"policyName": "p", "validationActions": actions}
    document = {"metadata": {"name": f"b{next(_numbers)}"}, "spec": spec}
    answer = kube.ask("POST", f"{ROOT}/validatingadmissionpolicybindings", document)
    assert answer.code == code, answer.body
