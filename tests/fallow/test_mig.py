"""MIG's placement tables: the known counts of layouts, and what can lie beside what."""

import pytest

from fallow import mig
from fallow.errors import UsageError


@pytest.mark.parametrize(
    ("double_memory", "layouts", "sets"),
    [(False, 19, 14), (True, 78, 38)],
    ids=["the published 19", "with the double-memory 1g"],
)
@pytest.mark.parametrize("model", ["A100-40GB", "H100", "B200"])
def test_the_table_gives_the_known_number_of_full_layouts(
    model: str, double_memory: bool, layouts: int, sets: int
) -> None:
    assert len(mig.list_maximal_layouts(model, double_memory=double_memory)) == layouts
    assert len(mig.list_multisets(model, double_memory=double_memory)) == sets


def test_every_known_set_can_be_laid_out_and_two_4g_cannot() -> None:
    for names in mig.list_multisets("H100"):
        assert sorted(name for name, _ in mig.find_layout("H100", names)) == list(names)
    with pytest.raises(UsageError, match="cannot hold 4g"):
        mig.find_layout("H100", ["4g.40gb", "4g.40gb"])


@pytest.mark.parametrize(
    ("taken", "profile", "lost"),
    [
        (0b0000_1111, "4g.40gb", 4),
        (0, "4g.40gb", 4),
        (0, "7g.80gb", 0),
        (0b0100_0000, "1g.10gb", 1),
    ],
    ids=["no second 4g", "one 4g wastes half", "a whole board", "the eighth slice"],
)
def test_slices_that_a_profile_cannot_use_are_stranded(
    taken: int, profile: str, lost: float
) -> None:
    assert mig.compute_stranded("H100", taken, ((profile, 1.0),)) == lost
