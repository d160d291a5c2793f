"""Reserved memory in no tensor is told, and nothing is claimed for it."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzers.precision.analyzer import PrecisionAnalyzer
from fallow.errors import SettingsError
from fallow.models import Finding
from fallow.settings import load
from fallow.settings.workloads import PrecisionSettings
from tests.analyzers.stepped import Stepped

GIB = 2**30


def found(site: Stepped, **chosen: Any) -> list[Finding]:
    made = PrecisionAnalyzer(PrecisionSettings(**chosen)).find(site.views, site.window)
    return [f for f in made if f.kind == "allocator_fragmentation"]


@pytest.fixture
def stepped(views: Any) -> Stepped:
    return Stepped(views)


def test_the_share_in_no_tensor_is_told(stepped: Stepped) -> None:
    stepped.job("loose", 8, allocated_bytes=240 * GIB, reserved_bytes=600 * GIB)
    stepped.job("tight", 8, allocated_bytes=560 * GIB, reserved_bytes=600 * GIB)
    stepped.job("mute", 8)
    (loose,) = found(stepped)
    assert loose.subject.workload == "loose"
    assert loose.details["fragmentation"] == pytest.approx(0.6)
    assert (loose.gpu_hours, loose.recommendations[0].claims) == (0, ())
    assert "360.0 GiB of each pod's 600.0" in loose.details["why"]


@pytest.mark.parametrize(
    ("what", "shown"),
    [
        ("more in tensors than is reserved", {"allocated_bytes": 2 * GIB, "reserved_bytes": GIB}),
        ("nothing is reserved", {"allocated_bytes": 0, "reserved_bytes": 0}),
        ("half of it is told", {"reserved_bytes": GIB}),
        ("some minutes", {"allocated_bytes": 1, "reserved_bytes": GIB, "hours": (0, 1)}),
        ("no interval", {"allocated_bytes": 1, "reserved_bytes": GIB, "interval_s": None}),
    ],
)
def test_no_finding(what: str, shown: dict[str, Any], stepped: Stepped) -> None:
    stepped.job("job", 1, **shown)
    assert found(stepped) == [], what


def test_a_bad_threshold_names_the_legal_range() -> None:
    with pytest.raises(SettingsError, match="less than 1"):
        load(flags={"precision.fragmented": 1})


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    memory=st.lists(st.tuples(st.integers(0, 80), st.integers(0, 80)), min_size=1, max_size=4),
    threshold=st.floats(0.01, 0.99),
)
def test_it_is_a_share_and_frees_nothing(
    make_site: Any, memory: list[tuple[int, int]], threshold: float
) -> None:
    site = Stepped(make_site().views)
    for n, (allocated, reserved) in enumerate(memory):
        site.job(f"j-{n}", 1, allocated_bytes=allocated * GIB, reserved_bytes=reserved * GIB)
    for finding in found(site, fragmented=threshold):
        assert threshold - 1e-4 <= finding.details["fragmentation"] <= 1
        assert finding.gpu_hours == 0
        assert all(not advice.claims for advice in finding.recommendations)
