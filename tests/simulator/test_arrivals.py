"""What people bring: the same for one seed, in the shares and lives that the tables name."""

import math

import numpy as np
import pytest

from fallow.errors import UsageError
from simulator.arrivals import Arrival, draw_arrivals, read_categories, replace_shares

START = 1_762_732_800.0  # Monday, 2025-11-10
DAY = 86_400.0


def held(found: list[Arrival], end: float) -> dict[str, float]:
    hours: dict[str, float] = {}
    for arrival in found:
        category = arrival.category
        life = min(arrival.life_s, end - arrival.at_s)
        gpu_hours = life / 3600 * category.size
        hours[category.category] = hours.get(category.category, 0.0) + gpu_hours
    return hours


def test_one_seed_brings_one_stream_and_another_seed_another() -> None:
    first = draw_arrivals(read_categories(), 64, START, START + DAY, seed=7)
    assert first == draw_arrivals(read_categories(), 64, START, START + DAY, seed=7)
    assert first != draw_arrivals(read_categories(), 64, START, START + DAY, seed=8)
    assert [a.at_s for a in first] == sorted(a.at_s for a in first)


def test_however_few_come_every_one_has_a_moment_and_a_life() -> None:
    for seed in range(300):
        found = draw_arrivals(read_categories(), 8, START, START + 8 * 3600, seed=seed)
        assert all(START <= a.at_s < START + 8 * 3600 and a.life_s >= 60 for a in found)


def test_every_category_holds_about_its_share() -> None:
    days, gpus = 14, 4096
    found = draw_arrivals(read_categories(), gpus, START, START + days * DAY, seed=3)
    hours = held(found, START + days * DAY)
    for category in read_categories():
        share = hours.get(category.category, 0.0) / (gpus * days * 24)
        assert share == pytest.approx(category.share, rel=0.5), category.category
    assert sum(hours.values()) / (gpus * days * 24) == pytest.approx(0.98, abs=0.08)


def test_run_times_have_the_published_medians() -> None:
    found = draw_arrivals(read_categories(), 8192, START, START + 7 * DAY, seed=5)
    lives = {"batch": 616.0, "train": 874.0}  # openb; Philly
    for name, median in lives.items():
        drawn = [a.life_s for a in found if a.category.category == name and a.at_s > START]
        assert np.median(drawn) == pytest.approx(median, rel=0.1), name
    assert math.isinf(next(a.life_s for a in found if a.category.category == "serving"))


def test_jobs_come_by_day_more_often_than_by_night() -> None:
    found = draw_arrivals(read_categories(), 4096, START, START + 5 * DAY, seed=1)
    hours = np.array([a.at_s % DAY / 3600 for a in found if a.at_s > START])
    working = ((hours >= 9) & (hours < 18)).sum() / 9
    assert working / ((hours < 9).sum() / 9) == pytest.approx(4.0, rel=0.15)


@pytest.mark.parametrize(
    ("shares", "word"),
    [({"mining": 0.1}, "mining"), ({"train": 1.5}, "1.5"), ({"train": -1}, "-1")],
)
def test_what_is_no_mix_is_refused_with_the_legal_names(
    shares: dict[str, float], word: str
) -> None:
    with pytest.raises(UsageError, match=word):
        replace_shares(shares)
    assert {c.category: c.share for c in replace_shares({"train": 0.5})}["train"] == 0.5
