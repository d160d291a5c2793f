"""Actions that wait for the approval of somebody else."""

import msgspec
import pytest

from actions.journal import event_types
from actions.loop.actor import approve
from actions.policy.model import Approvals
from fallow.errors import RefusedError, UsageError
from tests.actions.loop.site import POLICY, Site


def test_an_action_waits_for_somebody_else_to_approve_it(site: Site) -> None:
    site.policy = msgspec.structs.replace(POLICY, approvals=Approvals(when="always"))
    site.deployment()
    actor = site.actor(actor="ann")
    site.told_and_waited(actor)
    assert not actor.turn(dry_run=False).steps
    (wanted,) = actor.record.approval_requests.values()
    assert any(f"fallow approve {wanted.decision}" in t for t in site.told.operators())
    with pytest.raises(RefusedError, match="somebody else"):
        approve(actor.record, wanted.decision, "ann")
    with pytest.raises(UsageError, match="no request 'nobody'"):
        approve(actor.record, "nobody", "bob")
    assert approve(actor.record, wanted.decision[:8], "bob") == wanted.decision
    with pytest.raises(RefusedError, match="already"):
        approve(actor.record, wanted.decision, "bob")
    with pytest.raises(RefusedError, match="already"):
        approve(actor.record, wanted.finding[:8], "bob")  # as `fallow plan` lists it
    other = msgspec.structs.replace(wanted, policy="other", decision="other")
    actor.record.approval_requests["other"] = other
    with pytest.raises(UsageError, match="2 actions on finding"):
        approve(actor.record, wanted.finding, "bob")
    del actor.record.approval_requests["other"]
    actor.turn(dry_run=False)
    (result,) = actor.record.actions.values()
    assert result.action.approved_by == ("bob",)
    assert site.replicas() == 0


def test_who_approved_is_compared_by_the_subject_of_the_sign_in(site: Site) -> None:
    site.policy = msgspec.structs.replace(
        POLICY, approvals=Approvals(when="always", four_eyes=True)
    )
    site.deployment()
    actor = site.actor(actor="ann")
    site.told_and_waited(actor)
    actor.turn(dry_run=False)
    (request,) = actor.record.approval_requests.values()
    record, wanted = actor.record, request.decision
    with pytest.raises(RefusedError, match="somebody else"):
        approve(record, wanted, "Ann@example", "i 7")  # who asked had a name of this machine only
    approve(record, wanted, "bob@example", "i 1")
    with pytest.raises(RefusedError, match="already"):
        approve(record, wanted, "robert@example", "i 1")
    with pytest.raises(RefusedError, match="already"):
        approve(record, wanted, "bob")  # at the command line, without a subject
    approve(record, wanted, "bob@example", "i 2")
    (case,) = {(request.policy, request.finding)}
    assert [a.subject for a in record.approvals(*case)] == ["i 1", "i 2"]
    rows = site.journal().entries(event_types.APPROVED)
    assert [row.document["oidc_subject"] for row in rows] == ["i 1", "i 2"]
