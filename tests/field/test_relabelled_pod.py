"""A pod's team label that changes leaves the hours before to their team."""

import pytest

from tests.field.site import H100, HOURS, Site, build_node, build_pod, list_lines

PAST = 770


@pytest.mark.long
def test_a_team_label_that_changes_leaves_the_months_before_as_they_were(site: Site) -> None:
    """Two GPUs for 12 hours over a month ago are of team red, whatever the label says today."""
    node = build_node("n", born=900)
    site.set_price(2)

    def label(team: str) -> None:
        pod = build_pod("a", "n", gpus=2, born=900, labels={"team": team})
        assert site.import_objects(node, pod).code == 0

    def sum_red() -> float:
        sql = "SELECT sum(gpu_seconds) / 3600 AS h FROM ledger WHERE team = 'red'"
        (row,) = site.read_json("warehouse", "query", sql)["rows"]
        return float(row["h"] or 0)

    def measure(since: float) -> None:
        lines = [
            line
            for gpu in range(2)
            for line in list_lines(
                f"GPU-{gpu}", "n", gpu=gpu, since=since, until=since - HOURS, modelName=H100,
                pod="a", namespace="ml", container="c",
            )
        ]  # fmt: skip
        assert site.import_lines(*lines).code == 0

    label("red")
    measure(PAST)
    before = sum_red()
    assert before >= 2 * HOURS
    label("blue")
    assert sum_red() == before
    measure(PAST - HOURS)  # late samples of that month
    assert sum_red() >= 4 * HOURS
