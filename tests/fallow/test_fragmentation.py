"""The fragmentation measure against values that FGD's own simulator is tested with."""

import numpy as np
import pytest

from fallow.fragmentation import FragmentationMeasure, PodType

ONE_CORE_LEFT = 1_000
SHARING = (
    # What these ask in CPU or in model no node below has: all that is free is lost to them.
    PodType(6_000, 1, 465, popularity=0.0933),
    PodType(8_000, 1, 440, ("2080",), popularity=0.0915),
    PodType(2_000, 1, 1000, ("T4",), popularity=0.2),
    PodType(14_000, 2, 1000, popularity=0.5658),
)
WITH_CPU_ONLY = (
    PodType(15_700, 1, 1000, popularity=0.8614),
    PodType(1_000, 0, 0, popularity=0.0954),
    PodType(60_200, 4, 1000, popularity=0.0123),
    PodType(32_200, 4, 1000, popularity=0.0101),
    PodType(64_000, 8, 1000, popularity=0.0053),
    PodType(64_200, 8, 1000, popularity=0.0155),
)


@pytest.mark.parametrize(
    ("types", "cpu", "free", "lost"),
    [
        (SHARING, ONE_CORE_LEFT, [200, 1000, 1000, 500], 2566.62),
        (SHARING, ONE_CORE_LEFT, [1000] * 4, 3802.40),
        (SHARING, ONE_CORE_LEFT, [1000] * 8, 7604.80),
        (SHARING[:1], ONE_CORE_LEFT, [200, 1000, 1000, 500], 251.91),
        (WITH_CPU_ONLY, 64_000, [1000] * 8, 887.20),
        (WITH_CPU_ONLY, 32_000, [1000] * 4 + [0] * 4, 554.40),
        (WITH_CPU_ONLY, 0, [1000] * 4 + [0] * 4, 4000.00),
    ],
)
def test_the_known_values(
    types: tuple[PodType, ...], cpu: int, free: list[int], lost: float
) -> None:
    measure = FragmentationMeasure(types)
    arrays = np.array([cpu]), np.array([free]), ["1080"]
    assert measure.fragments(*arrays)[0] == pytest.approx(lost, abs=0.005)
    assert sum(measure.causes(*arrays).values()) == pytest.approx(lost, abs=0.005)
