"""A team's dollars are the same in every list, and alone."""

import pytest

from tests.field.site import FREE, WINDOW, Site, build_node, build_pod, list_lines

pytestmark = pytest.mark.long  # tests/dashboards/test_chargeback_foots.py: the same by function
TEAMS = ("red", "green", "blue")


def test_a_team_has_its_cents_in_every_list_and_alone(site: Site) -> None:
    site.set_price(0.3337)
    pods = [
        build_pod(f"{team}-0", "a", gpus=1, owner=("Job", team), labels={"team": team})
        for team in TEAMS
    ]
    assert site.import_objects(build_node("a", 4, born=6), *pods).code == 0
    lines = [
        line
        for k, team in enumerate(TEAMS)
        for line in list_lines(
            f"GPU-{k}", "a", gpu=k, pod=f"{team}-0", namespace="ml", container="c"
        )
    ]
    lines += list_lines("GPU-3", "a", gpu=3, values=FREE)
    assert site.import_lines(*lines).code == 0
    spend = site.read_json("spend", "--by", "team", *WINDOW)
    assert spend["total"]["usd"] == 8.01
    paid = {row["team"]: row["usd"] for row in spend["spend"]}
    assert all(usd in (2.0, 2.01) for usd in paid.values())
    assert round(sum(paid.values()), 2) == 8.01
    shared = site.read_json("spend", "--by", "team", "--share-unallocated", *WINDOW)["spend"]
    charged = {row["team"]: row for row in site.read_json("chargeback", *WINDOW)["chargeback"]}
    for row in shared:
        mine = charged[row["team"]]
        assert (mine["usd_loaded"], mine["total_usd"]) == (paid[row["team"]], row["usd"])
        assert round(mine["usd_loaded"] + mine["shared_usd"], 2) == mine["total_usd"]
    month = site.read_json("spend", "--by", "team", "--window", "month")["spend"]
    of_month = {row["team"]: row["usd"] for row in month}
    for team in TEAMS:
        (forecast,) = site.read_json("forecast", "--team", team)["forecasts"]
        assert forecast["usd"] == of_month[team]
