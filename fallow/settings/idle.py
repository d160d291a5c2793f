"""Settings of idleness: when a workload is idle, and how the ledger names a second."""

from datetime import timedelta

from pydantic import Field, field_validator

from fallow.settings.groups import Duration, SettingsGroup, TimeZone

LOOKBACK_MARGIN = timedelta(hours=1)
"""More than the longest duration that an idle verdict requires."""


class IdleSettings(SettingsGroup):
    """When a workload is idle (telemetry-and-waste.md#idle)."""

    threshold: float = Field(0.05, ge=0, le=1, description="activity at or below this is idle")
    exit_threshold: float = Field(0.10, ge=0, le=1, description="activity from here on ends a run")
    exit_samples: int = Field(2, ge=1, description="so many busy samples in a row end a run")
    min_duration: Duration = Field(timedelta(minutes=60), description="shorter runs are no finding")
    service_duration: Duration = Field(
        timedelta(hours=24),
        description="services are acted upon only after so long: they follow the day",
    )
    max_gap: Duration | None = Field(
        None, description="longest silence inside a run; unset = 3 intervals of the device"
    )
    coverage: float = Field(0.90, ge=0, le=1, description="least share of expected samples")
    startup_grace: Duration = Field(
        timedelta(minutes=15), description="younger pods are starting, not idle"
    )
    power_margin_w: float = Field(10.0, ge=0, description="above the learned idle power")
    host_cpu_cores: float = Field(
        0.3, ge=0, description="most cores that a quiescent pod uses, without sidecars"
    )
    min_expected_rest: Duration | None = Field(
        timedelta(hours=4),
        description="no stop of what is probably wanted within so long; null = not asked",
    )
    history: Duration = Field(
        timedelta(days=30), description="how far back a workload's own rests count"
    )
    working_hours: tuple[int, int] = Field(
        (7, 19),
        description="first hour and the hour after the last, Monday to Friday, in which people "
        "come back to what they left: idle times at other hours do not predict these",
    )
    time_zone: TimeZone = Field("UTC", description="the time zone of working hours")

    @property
    def lookback(self) -> timedelta:
        """Return how far back live verdicts see idle work; what lasts longer is seen whole."""
        return max(self.min_duration, self.service_duration) + LOOKBACK_MARGIN

    @field_validator("working_hours")
    @classmethod
    def _in_order(cls, hours: tuple[int, int]) -> tuple[int, int]:
        first, last = hours
        if not 0 <= first < last <= 24:  # noqa: PLR2004  (a day's)
            raise ValueError("write two hours of a day in order, such as [7, 19]")
        return hours


class LedgerSettings(SettingsGroup):
    """How a second is named."""

    idle_threshold: float = Field(0.05, ge=0, le=1, description="activity at or below: idle")
    low_threshold: float = Field(0.30, ge=0, le=1, description="activity below: low")
    idle_stretch: Duration = Field(
        timedelta(minutes=30),
        description="shorter rests between active readings of a pod are low use, not idle",
    )
    startup: Duration = Field(
        timedelta(minutes=15), description="longest stretch before first work called startup"
    )
    max_lag: Duration = Field(
        timedelta(hours=6),
        description="a cluster further behind the newest one does not hold figures back",
    )
