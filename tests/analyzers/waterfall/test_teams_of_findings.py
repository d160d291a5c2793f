"""A finding belongs to its team, whichever analyzer found it: its savings are in the team's sum."""

import msgspec
import pytest

from analyzers.teams import add_teams
from fallow.models import Subject
from tests.analyzers.conftest import Memory
from tests.analyzers.waterfall.test_every_hour_is_saved_once import DAY, finding, post, posted


@pytest.mark.parametrize(
    ("subject", "team"),
    [
        (Subject("c", "ns", "Job", "w"), "red"),
        (Subject("c", "ns", "Quota", "gpus"), "blue"),
        (Subject("c", "ns", "Job", "w", team="own"), "own"),
        (Subject("c", "", "NodePool", "p"), None),
        (Subject("c", "other", "Quota", "gpus"), None),
    ],
)
def test_an_object_has_the_team_of_its_workload_or_of_most_of_its_namespace(
    views: Memory, subject: Subject, team: str | None
) -> None:
    more = posted(workload="v", team="blue", gpu_seconds=7200.0)
    post(views, [posted(), more, posted(namespace="dark", team=None)])
    (named,) = add_teams(views, DAY, [msgspec.structs.replace(finding(), subject=subject)])
    assert named.subject == msgspec.structs.replace(subject, team=team)
