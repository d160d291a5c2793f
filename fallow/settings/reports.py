"""Settings of scheduled reports: what is due when, and where it goes."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from fallow.crontab import parse_triggers
from fallow.settings.groups import S3, Duration, SettingsGroup, TimeZone

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_STORE = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[^?#\s]*)?")


def _format_named(text: str) -> str:
    if _NAME.fullmatch(text) is None:
        raise ValueError(f"{text!r} is no name: write a-z, 0-9 and -, up to 63 of them")
    return text


Name = Annotated[str, AfterValidator(_format_named)]


class ReportStore(SettingsGroup):
    """A bucket that reports are put into."""

    url: str = Field(description="s3://bucket/prefix; a report never overwrites another")
    s3: S3 = S3()
    encryption: Literal["", "AES256", "aws:kms"] = Field(
        "", description="asked of the server; empty = the bucket's default"
    )
    kms_key: str = Field("", description="of aws:kms; empty = the account's default key")

    @field_validator("url")
    @classmethod
    def _address(cls, url: str) -> str:
        if _STORE.fullmatch(url) is None:
            raise ValueError(f"{url!r} is no bucket: write s3://bucket or s3://bucket/prefix")
        return url.rstrip("/")


class Schedule(SettingsGroup):
    """A report that is due again and again."""

    name: Name = Field(description="of the schedule: a-z, 0-9 and -")
    audience: Literal["finance", "sre", "team"]
    team: str = Field("", description="whose; only where the audience is team")
    window: Duration = Field(
        timedelta(days=30),
        ge=timedelta(hours=1),
        le=timedelta(days=400),
        description="the window of the report, up to the time it is due",
    )
    format: Literal["html", "pdf", "md", "csv", "focus"] = "html"
    focus_version: Literal["1.2", "1.0"] = "1.2"
    cron: str = Field(description="when it is due, as in crontab: 0 7 * * mon, or @monthly")
    time_zone: TimeZone = Field("UTC", description="the time zone, such as Europe/Berlin")
    to: list[str] = Field(
        min_length=1, description="names of notices.channels and of reports.stores"
    )

    @field_validator("cron")
    @classmethod
    def _readable(cls, cron: str) -> str:
        parse_triggers(cron)
        return cron

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.audience == "team" and not self.team:
            raise ValueError(f"{self.name} is for a team: say which by team")
        if self.team and self.audience != "team" and self.format != "focus":
            raise ValueError(f"{self.name} names a team, but its audience is {self.audience}")
        twice = sorted({name for name in self.to if self.to.count(name) > 1})
        if twice:
            raise ValueError(f"{self.name} names {', '.join(twice)} twice in to")
        return self


class ReportsSettings(SettingsGroup):
    """What is reported when, and where it goes. Nothing is sent while `schedules` is empty."""

    schedules: list[Schedule] = Field(
        default_factory=list,
        description="name, audience, team, window, format, focus_version, cron, time_zone, to",
    )
    stores: dict[Name, ReportStore] = Field(
        default_factory=dict, description="buckets by name: url, s3, encryption, kms_key"
    )
    journal: Path | None = Field(
        None, description="SQLite file; unset = deliveries.sqlite under home"
    )
    timeout: Duration = Field(
        timedelta(seconds=60),
        ge=timedelta(seconds=1),
        le=timedelta(minutes=10),
        description="of one delivery, from connecting to the last answer",
    )
    try_again: Duration = Field(
        timedelta(minutes=1),
        ge=timedelta(seconds=10),
        le=timedelta(hours=1),
        description="after a destination was away; doubles each time, up to an hour",
    )
    give_up: Duration = Field(
        timedelta(hours=24),
        ge=timedelta(minutes=1),
        le=timedelta(days=7),
        description="a destination that is away for so long does not get this one",
    )

    @model_validator(mode="after")
    def _once(self) -> Self:
        names = [schedule.name for schedule in self.schedules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two schedules are called {', '.join(twice)}")
        return self
