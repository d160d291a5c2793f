"""ResourceQuotas that refuse, and those that cannot."""

from typing import Any

import pytest

from tests.simulator.kube.conftest import MERGE, Answer, Space, pod, until

GPU = "nvidia.com/gpu"
REQUESTS = f"requests.{GPU}"


def quota(space: Space, hard: dict[str, str], *, filled: bool = True) -> None:
    item = {"metadata": {"name": "gpus"}, "spec": {"hard": hard}}
    assert space.create("resourcequotas", item).code == 201
    if filled:
        body = {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
        path = space.path("resourcequotas", "gpus", "status")
        assert space.ask("PATCH", path, body, media=MERGE).code == 200


def start(space: Space, name: str, count: int, **query: Any) -> Answer:
    return space.create("pods", pod(name, limits={GPU: str(count)}), **query)


def refused(space: Space, count: int) -> None:
    """Wait until admission has seen the quota: a real server learns of it a moment later."""
    until(lambda: start(space, "probe", count, dryRun="All").code == 403)


def test_a_quota_refuses_what_it_has_no_room_for(space: Space) -> None:
    quota(space, {REQUESTS: "2"})
    refused(space, 3)
    assert start(space, "a", 1).code == 201
    answer = start(space, "b", 2)
    assert (answer.code, answer.body["reason"]) == (403, "Forbidden")
    assert answer.body["message"] == (
        f'pods "b" is forbidden: exceeded quota: gpus, requested: {REQUESTS}=2, '
        f"used: {REQUESTS}=1, limited: {REQUESTS}=2"
    )
    assert space.get("pods", "b").code == 404
    assert start(space, "c", 1).code == 201


def test_a_dry_run_is_refused_too_and_books_nothing(space: Space) -> None:
    quota(space, {REQUESTS: "2"})
    refused(space, 3)
    assert start(space, "a", 3, dryRun="All").code == 403
    assert start(space, "b", 2, dryRun="All").code == 201
    assert start(space, "c", 2).code == 201


def test_limits_of_extended_resources_enforce_nothing(space: Space) -> None:
    quota(space, {f"limits.{GPU}": "1"})
    assert start(space, "a", 8).code == 201


def test_a_quota_whose_status_is_empty_is_not_enforced_yet(space: Space) -> None:
    quota(space, {REQUESTS: "1"}, filled=False)
    assert start(space, "a", 8).code == 201


def test_a_lowered_quota_stops_the_next_and_not_the_present(space: Space) -> None:
    quota(space, {REQUESTS: "4"})
    refused(space, 5)
    assert start(space, "a", 4).code == 201
    lower = {"hard": {REQUESTS: "2"}}
    assert space.patch("resourcequotas", "gpus", {"spec": lower}).code == 200
    assert space.patch("resourcequotas", "gpus", {"status": lower}, part="status").code == 200
    assert space.get("pods", "a").code == 200
    refused(space, 1)


@pytest.mark.parametrize("hard", [{"requests.cpu": "1"}, {"limits.memory": "1Gi"}])
def test_metered_amounts_must_be_said(space: Space, hard: dict[str, str]) -> None:
    quota(space, hard)
    refused(space, 1)
    answer = start(space, "a", 1)
    assert answer.code == 403
    assert f"must specify {next(iter(hard))}" in answer.body["message"]
