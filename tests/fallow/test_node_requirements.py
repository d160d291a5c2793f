"""Whether a pod may run on a node: selector, affinity and taints, as the scheduler decides it."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fallow.node_requirements import (
    UNREADABLE_REQUIREMENTS,
    BlockingTaint,
    NodeRequirements,
    TaintToleration,
    read_requirements,
    read_taints,
)
from fallow.stored_annotations import AFFINITY, SELECTOR, TOLERATIONS
from simulator.cluster.scheduler.eligibility import is_eligible
from simulator.cluster.scheduler.requests import NodeFree, NodeTaint, PodRequest, PodToleration

GPU = BlockingTaint("gpu", "h100", "NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        (("gpu", "Equal", "h100", "NoSchedule"), True),
        (("gpu", "", "h100", ""), True),  # Equal is the default
        (("gpu", "Equal", "h100", ""), True),
        (("gpu", "Equal", "a100", ""), False),
        (("gpu", "Equal", "", ""), False),
        (("gpu", "Exists", "", ""), True),
        (("gpu", "Exists", "", "NoExecute"), False),
        (("team", "Exists", "", ""), False),
        (("", "Exists", "", ""), True),
        (("", "Exists", "", "NoSchedule"), True),
        (("", "Exists", "", "NoExecute"), False),
        (("", "Equal", "h100", ""), False),
        (("gpu", "Lt", "h100", ""), False),  # an operator that is not known tolerates nothing
    ],
)
def test_a_toleration_covers_taints_as_kubernetes_defines(
    toleration: tuple[str, str, str, str], tolerated: bool
) -> None:
    assert TaintToleration(*toleration).covers(GPU) is tolerated


def test_a_taint_without_a_value_needs_a_toleration_without_one() -> None:
    taint = BlockingTaint("gpu", "", "NoExecute")
    assert TaintToleration("gpu", "Equal", "", "").covers(taint)
    assert not TaintToleration("gpu", "Equal", "h100", "").covers(taint)


def test_only_taints_that_keep_pods_away_are_read() -> None:
    effects = ("NoSchedule", "NoExecute", "PreferNoSchedule")
    text = json.dumps([{"key": "gpu", "effect": effect, "value": None} for effect in effects])
    assert read_taints(text) == {
        BlockingTaint("gpu", "", "NoSchedule"),
        BlockingTaint("gpu", "", "NoExecute"),
    }
    assert read_taints(None) == read_taints("[]") == frozenset()


MODEL, MEMORY = "nvidia.com/gpu.product", "nvidia.com/gpu.memory"


@pytest.mark.parametrize(
    ("annotations", "labels", "refusal"),
    [
        ({}, {}, ""),
        ({"fallow.selector": {MODEL: ["L4"]}}, {MODEL: "L4"}, ""),
        ({"fallow.selector": {MODEL: ["L4"]}}, {}, f"it requires {MODEL}=L4, not None"),
        ({"fallow.selector": {MODEL: ["L4"]}}, None, ""),  # unknown labels are no obstacle
        (
            {"fallow.node-affinity": [[[MODEL, "NotIn", ["T4"]]]]},
            {MODEL: "T4"},
            f"it requires {MODEL} NotIn T4",
        ),
        ({"fallow.node-affinity": [[[MODEL, "NotIn", ["T4"]]]]}, {}, ""),
        (
            {"fallow.node-affinity": [[[MODEL, "In", ["L4"]], [MEMORY, "Gt", ["40000"]]]]},
            {MODEL: "L4", MEMORY: "23034"},
            f"it requires {MODEL} In L4 and {MEMORY} Gt 40000",
        ),
        (
            {"fallow.node-affinity": [[[MEMORY, "Gt", ["40000"]]], [[MODEL, "Exists", []]]]},
            {MODEL: "L4", MEMORY: "23034"},
            "",  # one alternative is enough
        ),
        (
            {"fallow.node-affinity": [[[MEMORY, "Gt", ["40000"]]], [["spot", "Exists", []]]]},
            {MEMORY: "23034"},
            f"it requires {MEMORY} Gt 40000 or spot Exists",
        ),
    ],
)
def test_labels_decide(
    annotations: dict[str, Any], labels: dict[str, str] | None, refusal: str
) -> None:
    assert read_requirements(annotations).explain_refusal(labels, ()) == refusal


@pytest.mark.parametrize(
    ("wanted", "model", "accepted"),
    [
        ("A100", "A100-80GB", True),
        ("A100", "A100-40GB", True),
        ("A100-SXM4-80GB", "A100-40GB", False),
        ("H200,A100", "H100", False),
        ("H200,H100", "H100", True),
        ("Acme Quark 7", "Acme-Quark-7", True),
        ("A100", None, True),
    ],
)
def test_a_gpu_model_without_a_size_is_each_of_its_sizes(
    wanted: str, model: str | None, *, accepted: bool
) -> None:
    by_annotation = read_requirements({"nvidia.com/use-gputype": wanted})
    by_label = read_requirements({}, wanted.replace(",", "|"))
    assert by_annotation == by_label
    assert (not by_label.explain_refusal({}, (), model)) == accepted


def test_every_taint_must_be_tolerated() -> None:
    pod = read_requirements({"fallow.tolerations": [["gpu", "Exists", "", ""]]})
    assert not pod.explain_refusal({}, {GPU})
    refusal = pod.explain_refusal({}, {GPU, BlockingTaint("team", "a", "NoExecute")})
    assert refusal == "it does not tolerate the taint team"


WORDS = st.sampled_from(["a", "b", ""])
EFFECTS = st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"])


@given(
    st.dictionaries(st.sampled_from(["x", "y"]), WORDS),
    st.dictionaries(st.sampled_from(["x", "y"]), WORDS),
    st.lists(st.tuples(st.sampled_from(["k", "l"]), WORDS, EFFECTS), max_size=3),
    st.lists(
        st.tuples(
            st.sampled_from(["k", "l"]),
            st.sampled_from(["Equal", "Exists"]),
            WORDS,
            st.one_of(st.just(""), EFFECTS),
        ),
        max_size=3,
    ),
)
def test_product_and_simulated_scheduler_agree(
    labels: dict[str, str],
    selector: dict[str, str],
    taints: list[tuple[str, str, str]],
    tolerations: list[tuple[str, str, str, str]],
) -> None:
    pod = NodeRequirements(
        tuple((k, (v,)) for k, v in sorted(selector.items())),
        (),
        tuple(TaintToleration(*t) for t in tolerations),
    )
    document = json.dumps([{"key": k, "value": v, "effect": e} for k, v, e in taints])
    request = PodRequest(
        "uid",
        "ns/pod",
        selector=tuple(sorted(selector.items())),
        tolerations=tuple(PodToleration(*t) for t in tolerations),
    )
    node = NodeFree("n", 1, 1, labels=labels, taints=tuple(NodeTaint(*t) for t in taints))
    refused = bool(pod.explain_refusal(labels, read_taints(document)))
    assert refused is not is_eligible(request, node)


@pytest.mark.parametrize("value", ["x", 5, [1], [["a"]], {"a": 5}, True])
@pytest.mark.parametrize("key", [SELECTOR, AFFINITY, TOLERATIONS])
def test_stored_requirements_of_another_shape_fit_no_node(key: str, value: object) -> None:
    """Rows of before may have what a pod's owner wrote under the collector's keys."""
    needs = read_requirements({key: value})
    if needs == UNREADABLE_REQUIREMENTS:
        assert needs.explain_refusal({"a": "b"}, frozenset())
