"""Keys on cluster objects keep their names for ever: owners, undo and drift detection read them."""

import pytest

from actions.hints import admission, precision
from actions.loop import annotate, lease
from actions.nodes import recycling
from actions.notices import notice_text
from actions.reclaim import evicting
from actions.scaling import manifests
from analyzers.services import objectives
from analyzers.spot import tolerance
from fallow import checkpointing
from fallow.protections import read_annotations, read_notes
from fallow.resources import read_text
from fallow.settings.actions import LeaseSettings

OWNERS = read_text("analyzers", "owners.sql")
MARKS = annotate.ANNOTATION_KEYS


def unescape(pointer: str) -> str:
    """Return the key at the end of a JSON pointer (RFC 6901)."""
    return pointer.rpartition("/")[2].replace("~1", "/")


# The keys of commit bef8a1a, each with what reads or writes it today.
@pytest.mark.parametrize(
    ("key", "is_known"),
    [
        # Owners write these.
        ("keep", "fallow.dev/keep" in read_annotations()),
        ("keep-until", "fallow.dev/keep-until" in read_annotations()),
        ("protect", "fallow.dev/protect" in read_annotations()),
        ("channel", notice_text.CHANNEL == "fallow.dev/channel"),
        ("checkpoint-interval", checkpointing.INTERVAL == "fallow.dev/checkpoint-interval"),
        ("deadline", tolerance.DEADLINE == "fallow.dev/deadline"),
        ("evict", evicting.OPT_IN == "fallow.dev/evict"),
        ("family", '$."fallow.dev/family"' in OWNERS),
        ("precision", admission.LABEL == "fallow.dev/precision"),
        ("slo", objectives.SLO == "fallow.dev/slo" and '$."fallow.dev/slo"' in OWNERS),
        ("work-hours", tolerance.WORK == "fallow.dev/work-hours"),
        # Fallow writes these, and removes them with the undo.
        ("action", MARKS[0] == "fallow.dev/action"),
        ("acted-at", MARKS[1] == "fallow.dev/acted-at"),
        ("undo", MARKS[2] == "fallow.dev/undo"),
        ("how-to-keep", MARKS[3] == "fallow.dev/how-to-keep"),
        ("link", MARKS[4] == "fallow.dev/link"),
        ("hint", unescape(precision.HINT) == "fallow.dev/hint"),
        ("recycle", unescape(recycling.REASON) == annotate.RECYCLE_KEY == "fallow.dev/recycle"),
        ("warm-pool", manifests.POOL_LABEL == "fallow.dev/warm-pool"),
    ],
)
def test_a_key_of_before_is_still_the_key(key: str, *, is_known: bool) -> None:
    assert is_known, f"fallow.dev/{key}: read the old key for ever beside a new one"


@pytest.mark.parametrize(
    "key",
    ["channel", "checkpoint-interval", "deadline", "family", "slo", "work-hours"],
)
def test_a_note_of_owners_is_collected(key: str) -> None:
    assert f"fallow.dev/{key}" in read_notes()


def test_the_lease_of_before_is_the_lease() -> None:
    settings = LeaseSettings()
    assert (settings.namespace, settings.name) == ("fallow", "fallow-actor")
    assert lease.API == "coordination.k8s.io/v1"
