"""An eviction is sent only where its undo may create the pod again."""

import pytest

from tests.actions.loop.site import SPACE, Site


@pytest.mark.parametrize("namespace", ["*", SPACE])
def test_a_bare_pod_is_not_evicted_without_the_right_to_create_it_again(
    site: Site, namespace: str
) -> None:
    site.bare_pod()
    site.server.access.deny("create", "pods", namespace=namespace)
    actor = site.actor()
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "refused", step
    assert step.reasons[0].text == (
        f"its undo has to create pods in {SPACE}, which this account may not: bind "
        "fallow-restore-pods of deploy/rbac/actor.yaml there"
    )
    assert site.get("Pod", "alone")["metadata"].get("deletionTimestamp") is None
    assert not site.writes("/eviction")
    assert actor.record.actions == {}


def test_the_right_in_its_own_namespace_is_enough(site: Site) -> None:
    site.bare_pod()
    site.server.access.deny("create", "pods", namespace="fallow")
    actor = site.actor()
    site.told_and_waited(actor)
    (step,) = actor.turn(dry_run=False).steps
    assert step.result == "acted", step
