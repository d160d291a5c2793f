"""What is found of quotas: who starves, hoards and is promised ghosts, and who may give."""

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzers.quota.analyzer import QuotaAnalyzer
from analyzers.quota.findings import find_waste, share_free_hours
from analyzers.quota.groups import FreeGpus, QuotaGroup
from analyzers.quota.measures import QuotaMeasures, measure_group
from analyzers.quota.proposal import propose
from analyzers.waterfall import build_waterfall
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.capacity import QuotaSettings
from fallow.window import Window
from runtime.operations.analysis.findings import document

GOLDEN = Path(__file__).parent / "golden"
Ground = Any
Make = Callable[..., Ground]


def found(ground: Ground, **chosen: Any) -> dict[str, Finding]:
    made = QuotaAnalyzer(QuotaSettings(**chosen)).find(ground.views, ground.window)
    return {f.kind: f for f in made}


def fill(ground: Ground, site: dict[str, Any]) -> None:
    for quota in site["quotas"]:
        ground.quota(**quota)
    for pod in site["pods"]:
        ground.pod(**pod)
    ground.post(**site["ledger"])


@pytest.mark.parametrize("name", sorted(p.name for p in GOLDEN.iterdir()))
def test_golden(name: str, make_ground: Make) -> None:
    site = json.loads((GOLDEN / name / "site.json").read_text())
    ground = make_ground(gpus=site["gpus"], days=site["days"])
    fill(ground, site)
    analyzer = QuotaAnalyzer()
    made = [document(f) for f in analyzer.find(ground.views, ground.window)]
    golden = GOLDEN / name / "findings.json"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(json.dumps(made, indent=2) + "\n")
    assert made == json.loads(golden.read_text())
    bill = build_waterfall(ground.views, ground.window, analyzer.find(ground.views, ground.window))
    assert bill.saved().gpu_hours <= bill.bill.gpu_hours


def test_the_slide_starves_b_of_what_a_borrowed(make_ground: Make) -> None:
    ground = make_ground(gpus=10)
    fill(ground, json.loads((GOLDEN / "elastic_starved/site.json").read_text()))
    starved = found(ground)["starved_queue"]
    # B is due 6, has 3, and asks for 3 more during 12 hours; A holds 2 above its 4.
    assert starved.subject.workload == "b"
    assert starved.details["starved_gpu_hours"] == 36
    assert starved.details["guarantee_violated_hours"] == 12
    assert starved.details["above_their_guarantee_meanwhile"] == {"a/a": 24}
    assert starved.gpu_hours == 0


def busy_then_quiet(ground: Ground) -> None:
    ground.quota("donor", 8, [8] * 28 + [1] * 7, 0, kind="ResourceQuota")
    ground.quota("needy", 4, 4, 4, kind="ResourceQuota")
    ground.pod("donor", 1)
    ground.pod("needy", 4)
    ground.post(free=7)


def test_one_quiet_week_makes_no_donor(make_ground: Make) -> None:
    ground = make_ground(gpus=12, days=35)
    busy_then_quiet(ground)
    stranded = found(ground)["stranded_quota"]
    assert stranded.details["proposal"]["moves"] == []
    assert stranded.recommendations[0].verb == "pool-quota"


def test_a_donor_that_history_would_have_hurt_is_refused_with_the_regret(make_ground: Make) -> None:
    # Quiet for twenty days, then busier week by week: whatever the past said was too little.
    rising = [1] * 20 + [2] * 5 + [4] * 5 + [6] * 4 + [1]
    ground = make_ground(gpus=12, days=35)
    ground.quota("donor", 8, rising, 0, kind="ResourceQuota")
    ground.quota("needy", 4, 4, 4, kind="ResourceQuota")
    ground.post(free=7)
    made = found(ground, max_step=0.75)["stranded_quota"].details["proposal"]
    assert made["moves"] == []
    assert "would have missed" in made["refused"][0]["why"]


def test_a_short_history_makes_no_donor(make_ground: Make) -> None:
    ground = make_ground(gpus=12, days=10)
    ground.quota("donor", 8, 1, 0, kind="ResourceQuota")
    ground.quota("needy", 4, 4, 4, kind="ResourceQuota")
    ground.post(free=7)
    made = found(ground)["stranded_quota"].details["proposal"]
    assert made["refused"] == [
        {"name": "donor/donor", "why": "10 days of history: at least 21 are judged"}
    ]


def test_a_proposal_tells_machines_which_objects_and_when_each_last_changed(
    make_ground: Make,
) -> None:
    ground = make_ground(gpus=12, days=35)
    ground.quota("donor", [8] * 30 + [6] * 5, 1, 0, kind="ResourceQuota")
    ground.quota("needy", 4, 4, 4, kind="ResourceQuota")
    ground.post(free=7)
    answer = found(ground, max_step=0.5)["stranded_quota"].recommendations[0].parameters["proposal"]
    assert (answer["kind"], answer["resource"], answer["flavor"]) == (
        "ResourceQuota", "nvidia.com/gpu", ""
    )  # fmt: skip
    donor, needy = answer["moves"]
    assert (donor["namespace"], donor["object"]) == ("donor", "donor")
    assert donor["to_gpus"] - donor["from_gpus"] == needy["from_gpus"] - needy["to_gpus"] < 0
    assert donor["changed_gpus"] == -2
    assert donor["changed_at"] == ground.window.end - timedelta(days=5, hours=1)
    assert needy["waiting_gpus"] == 4
    assert "changed_at" not in needy


def test_teams_that_take_turns_would_need_half_in_one_pool(make_ground: Make) -> None:
    ground = make_ground(gpus=16, days=14)
    ground.quota("odd", 8, [8, 0], kind="ResourceQuota")
    ground.quota("even", 8, [0, 8], kind="ResourceQuota")
    ground.post(free=8)
    pooled = found(ground)["unpooled_quota"]
    assert pooled.details["multiplexing_gain_gpus"] == 8
    assert pooled.gpu_hours == 8 * 24
    assert pooled.usd == Decimal(384)


@pytest.mark.parametrize(
    ("waits", "hoarded"),
    [
        ((0, 3), {"a": 72}),  # of a's four idle GPUs three are waited for
        ((3, 0), {}),  # by itself: nobody else
        ((0, 9), {"a": 96}),
        ((2, 1), {"a": 24, "b": 24}),  # b idles one, for which a waits
    ],
)
def test_hoarded_is_what_idles_while_others_wait(
    waits: tuple[int, int], hoarded: dict[str, float], make_ground: Make
) -> None:
    ground = make_ground(gpus=12)
    for name, waiting in zip("ab", waits, strict=True):
        ground.quota(name, 6, 6, waiting, kind="ElasticQuota.koordinator")
    ground.post(idle={"a": 4, "b": 1} if all(waits) else {"a": 4})
    made = QuotaAnalyzer().find(ground.views, ground.window)
    assert {f.subject.workload: f.gpu_hours for f in made if f.kind == "hoarded_quota"} == hoarded


def test_free_gpus_of_another_model_are_not_stranded(make_ground: Make) -> None:
    ground = make_ground(gpus=8)
    seen = {"first_seen": ground.hours[0], "last_seen": ground.hours[-1]}
    other = {"cluster": "c", "node": "n1", "gpu_count": 4, "gpu_model": "L4", **seen}
    ground.views.rows("node", [other])
    ground.quota("a", 8, 0)
    ground.quota("b", 0, 0, limit=0)
    wants = '{"fallow.selector": {"nvidia.com/gpu.product": ["%s"]}}'
    ground.pod("b", 3, waits_h=24, annotations=wants % "NVIDIA-L4")
    ground.post(free=8)  # H100s
    assert "stranded_quota" not in found(ground)
    ground.pod("b", 1, waits_h=24, annotations=wants % "NVIDIA-H100-80GB-HBM3")
    stranded = found(ground)["stranded_quota"]
    assert stranded.gpu_hours == 24
    assert stranded.recommendations[0].verb == "raise-limits"


def test_kueues_waiting_workloads_are_their_cluster_queues(make_ground: Make) -> None:
    ground = make_ground(gpus=16)
    fill(ground, json.loads((GOLDEN / "kueue_ghosts/site.json").read_text()))
    summary = QuotaAnalyzer().summary(ground.views, ground.window)["groups"]
    members = {m["name"]: m for m in summary["c/ClusterQueue/all/nvidia.com/gpu@h100"]["members"]}
    assert members["prod"]["demand_gpus"] == 12
    assert members["research"]["demand_gpus"] == 8


REFUSED = (
    'Error creating: pods "web-1" is forbidden: exceeded quota: {quota}, requested: '
    "requests.{resource}={n},requests.cpu=4, used: requests.{resource}=4, limited: requests.x=4"
)


def refuse(ground: Ground, times: list[float], *, namespace: str = "b", **words: Any) -> None:
    start = ground.window.start.replace(tzinfo=None)
    answer = {"quota": namespace, "resource": "nvidia.com/gpu", "n": 2, **words}
    rows = [
        {
            "cluster": "c", "uid": f"{namespace}-{n}", "ts": start + timedelta(hours=hour),
            "namespace": namespace, "kind": "ReplicaSet", "name": "web", "reason": "FailedCreate",
            "message": REFUSED.format(**answer),
        }
        for n, hour in enumerate(times)
    ]  # fmt: skip
    ground.views.rows("event", rows)


QUARTERS = [n / 4 for n in range(24 * 4)]


@pytest.mark.parametrize(
    ("times", "words", "waited"),
    [
        (QUARTERS, {}, 48),
        ([0, 0.1, 0.2], {}, 2 * (0.2 + 1000 / 3600)),
        ([2], {"n": 3}, 3 * 1000 / 3600),
        (QUARTERS, {"quota": "other"}, 0),
        (QUARTERS, {"resource": "example.com/fpga"}, 0),
    ],
    ids=["all day", "a while", "once", "another quota", "no GPU"],
)
def test_pods_that_a_quota_refused_are_demand(
    make_ground: Make, times: list[float], words: dict[str, Any], waited: float
) -> None:
    ground = make_ground(gpus=8)
    ground.quota("a", 4, 0, kind="ResourceQuota")
    ground.quota("b", 4, 4, kind="ResourceQuota")
    ground.pod("b", 4)
    refuse(ground, times, **words)
    ground.post(free=4)
    summary = QuotaAnalyzer().summary(ground.views, ground.window)["groups"]
    group = summary["c/ResourceQuota/nvidia.com/gpu"]
    assert group["blocked_gpu_hours"] == pytest.approx(waited)
    assert group["stranded_gpu_hours"] == pytest.approx(waited)
    if waited > 1:
        one = found(ground)["stranded_quota"]
        assert one.evidence == "suspected"
        assert "one pod's request is counted" in one.details["assumed"][0]


def test_a_refusal_ends_when_the_owner_has_its_pod(make_ground: Make) -> None:
    ground = make_ground(gpus=8)
    ground.quota("a", 4, 0, kind="ResourceQuota")
    ground.quota("b", 4, 4, kind="ResourceQuota")
    start = ground.window.start.replace(tzinfo=None)
    made = start + timedelta(minutes=6)
    ground.pod("b", 2, owner_kind="ReplicaSet", owner_name="web", created_at=made)
    refuse(ground, [0])
    ground.post(free=4)
    summary = QuotaAnalyzer().summary(ground.views, ground.window)["groups"]
    assert summary["c/ResourceQuota/nvidia.com/gpu"]["blocked_gpu_hours"] == pytest.approx(0.2)


def test_a_quota_of_instances_is_laid_beside_instances_alone(make_ground: Make) -> None:
    ground = make_ground(gpus=8)
    mig = "nvidia.com/mig-3g.40gb"
    for name, used in (("a", 0), ("b", 2)):
        ground.quota(name, 2, used, kind="ElasticQuota", resource=mig, limit=2)
    ground.pod("b", 3 / 7, waits_h=24, gpu_resource=mig)
    ground.pod("b", 1, waits_h=24)
    ground.post(free=4)
    device = {"cluster": "c", "device": "gpu-free", "profile": "3g.40gb"}
    summary = QuotaAnalyzer().summary(ground.views, ground.window)["groups"]
    group = summary[f"c/ElasticQuota/{mig}"]
    assert group["blocked_gpu_hours"] == pytest.approx(24 * 3 / 7)
    assert group["stranded_gpu_hours"] == 0  # what is free is whole
    assert group["members"][0]["entitled_gpus"] == pytest.approx(6 / 7, abs=1e-3)
    ground.views.rows("device", [device])
    one = found(ground)["stranded_quota"]
    assert one.gpu_hours == pytest.approx(24 * 3 / 7)
    assert one.recommendations[0].verb == "raise-limits"


@pytest.mark.parametrize(("lending", "blocked"), [(None, 0), (1, 24), (0, 48)])
def test_what_a_cohort_does_not_lend_walls_others_in(
    make_ground: Make, lending: float | None, blocked: float
) -> None:
    ground = make_ground(gpus=8)
    queue = {"kind": "ClusterQueue", "namespace": ""}
    ground.quota("a", 4, 0, parent="A", lending=lending, **queue)
    ground.quota("b", 4, 4, parent="B", **queue)
    ground.quota("q", None, None, 2, kind="LocalQueue", namespace="ns", parent="b")
    for name, resource in (("A", "cohorts"), ("B", "cpu@h100")):
        cohort = {"kind": "Cohort", "namespace": "", "resource": resource}
        ground.quota(name, None, None, parent="root", **cohort)
    ground.post(free=4)
    summary = QuotaAnalyzer().summary(ground.views, ground.window)["groups"]
    group = summary["c/ClusterQueue/root/nvidia.com/gpu"]
    assert (group["blocked_gpu_hours"], group["stranded_gpu_hours"]) == (blocked, blocked)


def test_what_guarantees_no_number_is_said(make_ground: Make) -> None:
    ground = make_ground()
    ground.quota("endless", None, 3, kind="Queue.kai", namespace="")
    assert found(ground) == {}
    (doubt,) = QuotaAnalyzer().unjudged(ground.views, ground.window)
    assert doubt.subject.workload == "endless"
    assert doubt.reasons == ("its Queue.kai has no nominal quota of nvidia.com/gpu",)


def test_nothing_is_found_where_nothing_is_known(make_ground: Make) -> None:
    assert found(make_ground()) == {}


def test_a_parent_queue_is_not_counted_beside_its_children(make_ground: Make) -> None:
    ground = make_ground(gpus=8)
    ground.quota("dept", 8, 0, kind="Queue.kai", namespace="")
    ground.quota("team", 8, 0, kind="Queue.kai", namespace="", parent="dept")
    assert found(ground) == {}


@pytest.mark.parametrize(
    ("key", "value", "legal"),
    [("max_missed_demand", 0.9, "0.5"), ("history_days", 3, "7"), ("max_step", 0, "0")],
)
def test_illegal_thresholds_name_what_is_legal(key: str, value: float, legal: str) -> None:
    with pytest.raises(SettingsError, match=legal):
        load(environ={}, flags={f"quota.{key}": value})


def group(nominal: list[int], used: list[list[float]], waiting: list[list[float]]) -> QuotaGroup:
    shape = 40 * 24, len(nominal)
    rows = np.resize(np.repeat(np.array(used), 24, axis=0), shape)
    waits = np.resize(np.repeat(np.array(waiting), 24, axis=0), shape)
    none = np.zeros(shape)
    inside = np.arange(shape[0]) >= shape[0] - 24 * 7
    free = np.full(shape[0], 5.0)
    return QuotaGroup(
        "c", "ResourceQuota", "", "nvidia.com/gpu", False,
        tuple((f"n{n}", "q") for n in range(len(nominal))), np.arange(shape[0]), inside,
        np.tile(np.array(nominal, dtype=np.float64), (shape[0], 1)), np.full(shape, np.inf),
        rows, waits, rows, waits, none, none, none, none,
        FreeGpus(free, 1.0, True, 64, 0, 0, 1),
    )  # fmt: skip


def test_a_donor_keeps_what_it_uses_now_though_its_past_needed_less() -> None:
    """Of 16 it used 1 for 39 days and uses 9 since the last hour; the other waits for 8."""
    one = group([16, 4], [[1, 4]], [[0, 8]])
    one.used[-1, 0] = 9
    made = propose(one, measure_group(one), QuotaSettings(max_step=1, max_missed_demand=0.5))
    assert made is not None
    assert [(gift.before, gift.after) for gift in made.gifts] == [(16, 9)]


days = st.lists(st.lists(st.floats(0, 12), min_size=3, max_size=3), min_size=7, max_size=14)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 16), min_size=3, max_size=3), days, days, st.floats(0, 0.5))
def test_a_proposal_moves_quota_and_makes_none(
    nominal: list[int], used: list[list[float]], waiting: list[list[float]], regret: float
) -> None:
    chosen = QuotaSettings(max_missed_demand=regret)
    one = group(nominal, used, waiting)
    answer: QuotaMeasures = measure_group(one)
    free = one.money.free[one.inside]
    assert (answer.stranded.sum(axis=1) <= free + 1e-6).all()
    assert answer.stranded.sum() == pytest.approx(answer.served.sum())
    made = propose(one, answer, chosen)
    if made is None:
        return
    given_up = sum(g.before - g.after for g in made.gifts)
    assert given_up == pytest.approx(sum(after - before for _, before, after in made.receipts))
    assert not {g.column for g in made.gifts} & {n for n, *_ in made.receipts}
    for gift in made.gifts:
        kept = np.quantile(one.demand[:, gift.column], gift.trial.keep_quantile, method="higher")
        assert gift.after >= min(gift.before, kept + chosen.floor_gpus) - 1e-6
        assert gift.after >= one.used[-1, gift.column] - 1e-6
        assert gift.before - gift.after <= chosen.max_step * gift.before + 1e-6
        assert gift.trial.missed_share <= regret


@settings(max_examples=60, deadline=None)
@given(days, days, days)
def test_findings_claim_no_more_free_hours_than_there_are(
    used: list[list[float]], waiting: list[list[float]], others: list[list[float]]
) -> None:
    second = msgspec.structs.replace(
        group([2, 9, 4], waiting, others),
        parent="b",
        members=(("x", "q"), ("y", "q"), ("z", "q")),
    )
    groups = [group([8, 4, 4], used, waiting), second]
    window = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 8, tzinfo=UTC))
    wasted = [f for one in groups for f in find_waste(one, window, QuotaSettings())]
    shared = share_free_hours(wasted, groups)
    assert [f.id for f in shared] == [f.id for f in wasted]
    claimed = [[sum(c.gpu_hours for a in f.recommendations for c in a.claims if c.state == "free")
                for f in each] for each in (wasted, shared)]  # fmt: skip
    assert sum(claimed[1]) == pytest.approx(min(sum(claimed[0]), 5 * 24 * 7))
    assert all(after <= before for before, after in zip(*claimed, strict=True))
    for before, after in zip(wasted, shared, strict=True):
        daily = [f.recommendations[0].gpu_hours_per_day or 0 for f in (before, after)]
        assert daily[1] == pytest.approx(
            sum(c.gpu_hours for c in after.recommendations[0].claims) / 7, abs=1e-3
        )
        assert daily[1] <= daily[0]
