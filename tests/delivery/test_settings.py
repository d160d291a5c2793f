"""Schedules are refused where they are read, with what would be legal."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fallow.errors import SettingsError
from fallow.settings import load

GOOD = {"name": "weekly", "audience": "finance", "cron": "0 7 * * mon", "to": ["mail"]}


def read(tmp_path: Path, *schedules: dict[str, Any], **reports: Any) -> Any:
    path = tmp_path / "fallow.yaml"
    channels = {"mail": {"url": "json://user:hunter2@127.0.0.1/"}}
    answer = {
        "notices": {"channels": channels},
        "reports": {"schedules": list(schedules), **reports},
    }
    path.write_text(yaml.safe_dump(answer))
    return load(file=path, environ={}).settings.reports


def test_a_schedule_says_little_and_means_the_usual(tmp_path: Path) -> None:
    (one,) = read(tmp_path, GOOD).schedules
    assert (one.format, one.time_zone, one.window.days) == ("html", "UTC", 30)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cron": "0 7 * *"}, "has 4 fields: write minute, hour"),
        ({"cron": "0 25 * * *"}, "hour '25' is out of range: 0-23"),
        ({"cron": "0 0 30 2 *"}, "never comes"),
        ({"time_zone": "Mars/Olympus"}, "there is no time zone 'Mars/Olympus'"),
        ({"to": ["slack"]}, "weekly goes to slack; notices.channels and reports.stores have: mail"),
        ({"to": []}, "at least 1 item"),
        ({"to": ["mail", "mail"]}, "names mail twice"),
        ({"audience": "board"}, "'finance', 'sre' or 'team'"),
        ({"audience": "team"}, "say which by team"),
        ({"team": "ml"}, "but its audience is finance"),
        ({"format": "docx"}, "'html', 'pdf', 'md', 'csv' or 'focus'"),
        ({"window": "5m"}, "from 1h up to 400d"),
        ({"name": "../weekly"}, "write a-z, 0-9 and -"),
        ({"zone": "UTC"}, "legal here: audience, cron"),
    ],
)
def test_what_is_not_legal_is_refused_with_what_is(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, {**GOOD, **change})
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ({"stores": {"mail": {"url": "s3://books"}}}, "both have mail"),
        ({"stores": {"a": {"url": "https://books"}}}, "write s3://bucket or s3://bucket/prefix"),
        ({"try_again": "1s"}, "from 10s up to 1h"),
    ],
)
def test_what_does_not_go_together_is_refused(
    tmp_path: Path, reports: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        read(tmp_path, GOOD, **reports)
    assert words in str(caught.value)


def test_two_schedules_have_two_names(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="two schedules are called weekly"):
        read(tmp_path, GOOD, GOOD)
