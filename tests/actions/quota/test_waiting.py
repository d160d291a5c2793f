"""A step is taken back when waiting worsens by it, and only then."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actions.quota.executor import QuotaExecutor
from actions.quota.proposals import read_proposal
from actions.quota.review import find_harm, read_quota_samples, review_step
from actions.quota.waiting_time import QuotaSample, compare_waiting
from fallow.action_models import Action, Intent, Target
from tests.actions.quota.site import GPU, decision, move
from tests.analyzers.conftest import Memory

START = datetime(2026, 11, 2, tzinfo=UTC)
HOUR = timedelta(hours=1)
Course = tuple[float, float]
"""Used and waiting."""


def looks(start: datetime, hours: int, **said: tuple[float, Course]) -> list[QuotaSample]:
    """Return looks: each quota's guarantee, use and waiting, the same in every hour."""
    return [
        QuotaSample(start + n * HOUR, key, nominal, *course)
        for n in range(hours)
        for key, (nominal, course) in said.items()
    ]


BEFORE = looks(START, 96, a=(16, (4, 0)), b=(4, (4, 4)))
AFTER = START + 96 * HOUR


def test_a_step_that_served_the_receiver_is_no_worse() -> None:
    comparison = compare_waiting(BEFORE, looks(AFTER, 48, a=(12, (4, 0)), b=(8, (8, 0))))
    assert comparison.worse is False
    assert (comparison.harm_gpu_hours, comparison.good_gpu_hours) == (0, 4 * 48)
    assert (comparison.waited_before, comparison.waited_after) == (0.5, 0)


def test_a_giver_that_waits_for_what_it_gave_is_harmed() -> None:
    comparison = compare_waiting(BEFORE, looks(AFTER, 48, a=(12, (12, 3)), b=(8, (5, 0))))
    assert comparison.worse is True
    assert (comparison.harm_gpu_hours, comparison.good_gpu_hours) == (3 * 48, 48)
    assert comparison.why.startswith("givers waited for 144.0 GPU-hours of what they gave (20.0%)")


def test_a_guarantee_goes_before_somebody_elses_good() -> None:
    comparison = compare_waiting(BEFORE, looks(AFTER, 48, a=(12, (12, 1)), b=(8, (8, 0))))
    assert comparison.good_gpu_hours > 3 * comparison.harm_gpu_hours
    assert comparison.worse is True
    rare = [*looks(AFTER, 8, a=(12, (12, 1)), b=(8, (8, 0)))]
    rare += looks(AFTER + 8 * HOUR, 40, a=(12, (12, 0)), b=(8, (8, 0)))
    assert compare_waiting(BEFORE, rare).worse is False, "8 of 600 GPU-hours"


def test_a_giver_that_waits_below_its_new_guarantee_waits_for_something_else() -> None:
    comparison = compare_waiting(BEFORE, looks(AFTER, 48, a=(12, (8, 2)), b=(8, (8, 0))))
    assert comparison.harm_gpu_hours == 0


def test_lines_that_grew_though_no_more_was_asked_for_are_worse() -> None:
    comparison = compare_waiting(BEFORE, looks(AFTER, 48, a=(12, (3, 2)), b=(8, (2, 5))))
    assert comparison.worse is True
    assert "1.400 hours were waited per GPU-hour had, 0.500 before" in comparison.why


def test_lines_that_grew_with_what_was_asked_for_are_not_the_steps_doing() -> None:
    comparison = compare_waiting(BEFORE, looks(AFTER, 48, a=(12, (4, 0)), b=(8, (8, 30))))
    assert comparison.worse is False
    assert "more was asked for" in comparison.why


def test_no_worse_than_the_worst_day_before_is_noise() -> None:
    bad_day = looks(START, 24, a=(16, (2, 0)), b=(4, (2, 8)))
    before = [*bad_day, *looks(START + 24 * HOUR, 72, a=(16, (4, 0)), b=(4, (4, 4)))]
    comparison = compare_waiting(before, looks(AFTER, 48, a=(12, (3, 0)), b=(8, (3, 6))))
    assert comparison.worse is False


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([], "not known"),
        (looks(AFTER, 23, a=(12, (4, 0)), b=(8, (8, 0))), "23 hours were seen after the step"),
        ([QuotaSample(AFTER + n * HOUR, "a", 12, 4, None) for n in range(48)], "not known"),
    ],
)
def test_too_little_seen_is_no_answer(after: list[QuotaSample], why: str) -> None:
    comparison = compare_waiting(BEFORE, after)
    assert comparison.worse is None
    assert why in comparison.why


course = st.tuples(st.floats(0, 20), st.floats(0, 20))


@given(course, course, st.integers(0, 8), st.randoms())
def test_what_nobody_asked_for_harms_nobody_and_order_is_no_matter(
    a: Course, b: Course, moved: int, dice: object
) -> None:
    after = looks(AFTER, 24, a=(16 - moved, a), b=(4 + moved, b))
    comparison = compare_waiting(BEFORE, after)
    assert 0 <= comparison.harm_gpu_hours <= 24 * moved + 1e-6
    assert 0 <= comparison.good_gpu_hours <= 24 * moved + 1e-6
    if a[1] == 0:
        assert comparison.harm_gpu_hours == 0
    if not moved:
        assert comparison.harm_gpu_hours == comparison.good_gpu_hours == 0
    shuffled = list(after)
    dice.shuffle(shuffled)  # type: ignore[attr-defined]
    assert compare_waiting(BEFORE, shuffled).worse == comparison.worse


@pytest.fixture
def views() -> Iterator[Memory]:
    memory = Memory()
    yield memory
    memory.engine.close()


def quota(
    views: Memory, kind: str, name: str, before: Course, after: Course, **more: object
) -> None:
    """Write a week before the step and two days after it; guarantees 16 -> 12 and 4 -> 8."""
    old, new = {"a": (16, 12), "b": (4, 8)}[name]
    rows = []
    for n in range(-168, 49):
        nominal, (used, waiting) = (old, before) if n < 0 else (new, after)
        rows.append(
            {
                "cluster": "lab", "ts": AFTER + n * HOUR, "kind": kind, "name": name,
                "namespace": "", "resource": GPU, "nominal": nominal, "used": used,
                "waiting": waiting, **more,
            }
        )  # fmt: skip
    views.rows("quota", rows)


def action(kind: str, flavor: str = "", space: str = "") -> Action:
    moves = [move(f"{space}a", 16, 12), move(f"{space}b", 4, 8)]
    made = decision(kind, moves, flavor=flavor)
    target = Target("lab", "v1", "Queue", "", "a", "u")
    return Action("x", made, Intent(target, "quota", (), ()), AFTER, "actor")


def test_the_executor_reviews_what_it_did_from_stored_rows(views: Memory) -> None:
    quota(views, "Queue.kai", "a", (4, 0), (12, 3))
    quota(views, "Queue.kai", "b", (4, 4), (5, 0))
    now = AFTER + 48 * HOUR
    review = review_step(action("Queue.kai"), views, now)
    assert review.worse is True
    assert review.harm_gpu_hours == 47 * 3, (
        "the hour of the step itself is neither before nor after"
    )
    reasons = QuotaExecutor().review(action("Queue.kai"), views, now)
    assert reasons is not None
    assert [r.gate for r in reasons] == ["worsened"]
    assert QuotaExecutor().review(action("Queue.kai"), views, AFTER + 5 * HOUR) is None


def test_a_step_stands_for_good_after_a_week_without_harm(views: Memory) -> None:
    quota(views, "Queue.kai", "a", (4, 0), (4, 0))
    quota(views, "Queue.kai", "b", (4, 4), (8, 0))
    executor = QuotaExecutor()
    assert executor.review(action("Queue.kai"), views, AFTER + 48 * HOUR) is None
    assert executor.review(action("Queue.kai"), views, AFTER + 168 * HOUR) == ()


def test_what_waits_for_a_cluster_queue_stands_in_its_local_queues(views: Memory) -> None:
    for name, used in (("a", 4), ("b", 4)):
        course = (used, None)
        quota(views, "ClusterQueue", name, course, course, resource=f"{GPU}@h100")  # type: ignore[arg-type]
    line = {"namespace": "team-b", "parent": "b", "nominal": None, "used": None}
    quota(views, "LocalQueue", "b", (0, 4), (0, 1), **line)
    idle = {"namespace": "team-a", "parent": "a", "nominal": None, "resource": "workloads"}
    quota(views, "LocalQueue", "a", (0, 0), (0, 0), **idle)
    review = review_step(action("ClusterQueue", "h100"), views, AFTER + 48 * HOUR)
    assert review.worse is False
    assert (review.waited_before, review.waited_after) == (0.5, 0.125)


def test_pods_without_a_place_wait_where_objects_do_not_say_it(views: Memory) -> None:
    for name in "ab":
        course = (4, None)
        quota(views, "ElasticQuota", name, course, course, namespace=f"team-{name}")  # type: ignore[arg-type]
    pod = {
        "cluster": "lab", "pod": "p", "namespace": "team-a", "gpu_request": 2.0,
        "gpu_resource": GPU, "last_seen": AFTER + 48 * HOUR,
    }  # fmt: skip
    waits = {"uid": "1", "created_at": AFTER - 100 * HOUR, "scheduled_at": AFTER - 50 * HOUR}
    views.rows("pod", [pod | waits | {"first_seen": AFTER - 100 * HOUR}])
    for n, other in enumerate(({"cluster": "other"}, {"gpu_resource": "amd.com/gpu"})):
        waits = {"uid": f"other-{n}", "created_at": AFTER - 90 * HOUR}
        views.rows("pod", [pod | waits | {"first_seen": AFTER - 90 * HOUR} | other])
    moved = decision(
        "ElasticQuota", [move("team-a/a", 16, 12), move("team-b/b", 4, 8)]
    )  # fmt: skip
    target = Target("lab", "v1", "ElasticQuota", "team-a", "a", "u")
    made = Action("x", moved, Intent(target, "quota", (), ()), AFTER, "actor")
    review = review_step(made, views, AFTER + 48 * HOUR)
    assert review.waited_before == pytest.approx(2 * 50 / (8 * 168), abs=1e-6)
    assert review.waited_after == 0


def test_a_queue_without_nominal_quota_waits_for_all_that_its_line_holds(views: Memory) -> None:
    for flavor, nominal in (("h100", 0), ("a100", 0)):
        more = {"resource": f"{GPU}@{flavor}", "nominal": nominal}
        quota(views, "ClusterQueue", "b", (4, None), (4, None), **more)  # type: ignore[arg-type]
    line = {"namespace": "team-b", "parent": "b", "nominal": None, "used": None}
    quota(views, "LocalQueue", "b", (0, 6), (0, 6), **line)
    moves = [move("b", 0, 4)]
    proposal, _ = read_proposal(decision("ClusterQueue", moves, flavor="h100").parameters)
    found = read_quota_samples(views, "lab", proposal, AFTER - 2 * HOUR, AFTER)
    assert [(sample.used, sample.waiting) for sample in found] == [(4.0, 6.0)] * 2


def test_a_verdict_is_given_from_a_day_and_a_step_is_final_from_a_week(views: Memory) -> None:
    quota(views, "Queue.kai", "a", (4, 0), (4, 0))
    quota(views, "Queue.kai", "b", (4, 4), (8, 0))
    week = AFTER + timedelta(days=7)
    assert find_harm(action("Queue.kai"), views, week) == ()
    assert find_harm(action("Queue.kai"), views, week - timedelta(seconds=1)) is None


def test_harm_is_reported_from_the_earliest_time_of_a_verdict_on(views: Memory) -> None:
    quota(views, "Queue.kai", "a", (4, 0), (12, 3))
    quota(views, "Queue.kai", "b", (4, 4), (5, 0))
    early = timedelta(hours=25)
    assert find_harm(action("Queue.kai"), views, AFTER + early - timedelta(seconds=1)) is None
    reasons = find_harm(action("Queue.kai"), views, AFTER + early)
    assert reasons is not None
    assert [reason.gate for reason in reasons] == ["worsened"]


def test_what_a_quota_of_a_namespace_used_is_read_from_its_pods(views: Memory) -> None:
    quota(views, "ElasticQuota", "a", (None, None), (None, None), namespace="team-a")  # type: ignore[arg-type]
    pod = {
        "cluster": "lab", "pod": "p", "uid": "1", "namespace": "team-a", "gpu_request": 2.0,
        "gpu_resource": GPU, "last_seen": AFTER + 48 * HOUR, "first_seen": AFTER - 100 * HOUR,
        "created_at": AFTER - 100 * HOUR, "scheduled_at": AFTER - 99 * HOUR,
    }  # fmt: skip
    views.rows("pod", [pod])
    moves = [move("team-a/a", 16, 12), move("team-b/b", 4, 8)]
    proposal, _ = read_proposal(decision("ElasticQuota", moves).parameters)
    samples = read_quota_samples(views, "lab", proposal, AFTER - 2 * HOUR, AFTER)
    assert [(sample.key, sample.used, sample.waiting) for sample in samples] == [
        ("team-a/a", 2.0, 0.0), ("team-a/a", 2.0, 0.0),
    ]  # fmt: skip


def test_limits_of_a_step_are_read_from_text_too() -> None:
    parameters = decision("Queue.kai", [move("a", 16, 12)]).parameters
    _, rules = read_proposal({**parameters, "max_step": "0.125"})
    _, same = read_proposal({**parameters, "max_step": 0.125})
    assert rules == same


def test_what_waits_in_an_hour_is_the_mean_of_its_samples(views: Memory) -> None:
    for minutes, waiting in ((0, 6), (30, 2)):
        sample = {
            "cluster": "lab",
            "ts": AFTER - HOUR + timedelta(minutes=minutes),
            "resource": GPU,
        }
        queue = {"kind": "ClusterQueue", "name": "b", "namespace": "", "nominal": 8, "used": 4}
        line = {"kind": "LocalQueue", "name": "b", "namespace": "team-b", "parent": "b"}
        views.rows("quota", [sample | queue, sample | line | {"waiting": waiting}])
    proposal, _ = read_proposal(decision("ClusterQueue", [move("b", 8, 4)]).parameters)
    samples = read_quota_samples(views, "lab", proposal, AFTER - 2 * HOUR, AFTER)
    assert [(each.key, each.waiting) for each in samples] == [("b", 4.0)]
