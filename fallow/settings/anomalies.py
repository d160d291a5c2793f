"""Settings of anomalies: when spend or waste is unusual, and which changes were planned."""

from decimal import Decimal

from pydantic import AwareDatetime, Field

from fallow.settings.groups import SettingsGroup
from fallow.settings.prices import Usd


class KnownChange(SettingsGroup):
    """A change that was planned: what it costs is no anomaly."""

    name: str = Field(min_length=1, description="team or namespace")
    start: AwareDatetime
    end: AwareDatetime


class AnomaliesSettings(SettingsGroup):
    """When spend or waste is out of the usual (telemetry-and-waste.md#anomalies)."""

    weeks: int = Field(
        8, ge=3, le=26, description="weeks before an hour that tell what is usual in it"
    )
    least_weeks: int = Field(
        3, ge=3, le=26, description="fewer of them seen: the hour is not judged"
    )
    spike: float = Field(
        3.5, ge=2, le=10, description="sigma from the median that make an hour stand out alone"
    )
    slack: float = Field(
        0.5, gt=0, le=5, description="of the CUSUM, in sigma: half the shift it is made for"
    )
    limit: float = Field(
        5.0, gt=0, le=50, description="of the CUSUM: at slack 0.5 one false alarm in 465 hours"
    )
    coverage: float = Field(
        0.9, gt=0, le=1, description="least share of the usual GPU-hours known; else not judged"
    )
    min_usd: Usd = Field(Decimal(100), description="a change of fewer dollars is no finding")
    min_gpu_hours: float = Field(24.0, ge=0, description="likewise where not all of it has a price")
    min_share: float = Field(
        0.10, ge=0, le=10, description="least part of what was usual in the same hours"
    )
    known_changes: list[KnownChange] = Field(
        default_factory=list, description="planned changes, kept quiet: name, start, end"
    )
