"""Settings of actions: whether to act, by which policies, how carefully, and whom to notify."""

from datetime import timedelta
from pathlib import Path
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from fallow.errors import UsageError
from fallow.quiet_hours import parse_quiet_hours
from fallow.settings.groups import Duration, SettingsGroup


class LeaseSettings(SettingsGroup):
    """The Lease (coordination.k8s.io) that lets one actor act, however many run."""

    name: str = Field("fallow-actor", min_length=1, description="of the Lease")
    namespace: str = Field("fallow", min_length=1, description="where the Lease lies")
    identity: str = Field("", description="who holds it; empty = host name and process")
    duration: Duration = Field(
        timedelta(minutes=2),
        ge=timedelta(seconds=10),
        le=timedelta(minutes=15),
        description="a holder that does not renew it for so long has lost it; longer than a turn",
    )


class BreakerSettings(SettingsGroup):
    """When telemetry as a whole is not to be trusted (telemetry-and-waste.md#safety)."""

    within: Duration = Field(
        timedelta(minutes=15),
        ge=timedelta(minutes=5),
        le=timedelta(hours=2),
        description="how fast it happens",
    )
    devices: float = Field(
        0.20, gt=0, le=1, description="share that turned idle or unknown within that time: freeze"
    )
    exporters: float = Field(0.10, gt=0, le=1, description="share that is down: freeze")
    least_devices: int = Field(
        10, ge=1, le=1000, description="with fewer devices that worked before, a share says little"
    )


class BackOffSettings(SettingsGroup):
    """How long somebody's refusal is respected."""

    reverted: Duration = Field(
        timedelta(hours=24),
        ge=timedelta(minutes=30),
        description="after somebody took an action back; doubles each time",
    )
    most: Duration = Field(timedelta(days=30), description="longest back-off")
    failed: Duration = Field(
        timedelta(hours=1), description="after an action that the API refused or that did not stick"
    )


class Channel(SettingsGroup):
    """Somewhere to tell people: an Apprise URL, and when not to."""

    url: SecretStr = Field(description="Apprise URL: mailto://, slack://, json://host/hook ...")
    quiet: list[str] = Field(
        default_factory=list, description="no notices then: 22:00-07:00 Europe/Berlin, sat-sun UTC"
    )

    @field_validator("quiet")
    @classmethod
    def _readable(cls, hours: list[str]) -> list[str]:
        for text in hours:
            try:
                parse_quiet_hours(text)
            except UsageError as error:
                raise ValueError(str(error)) from error
        return hours


class NoticesSettings(SettingsGroup):
    """Who is notified, how, and how often."""

    channels: dict[str, Channel] = Field(default_factory=dict, description="by name: url, quiet")
    owners: dict[str, list[str]] = Field(
        default_factory=dict, description="channels of each team; others get `default`"
    )
    default: list[str] = Field(default_factory=list, description="channels of everybody else")
    operators: list[str] = Field(
        default_factory=list, description="channels that get freezes, failures and demotions"
    )
    least_between: Duration = Field(
        timedelta(minutes=15), description="one digest per channel and so long, never a storm"
    )
    most_lines: int = Field(50, ge=1, le=1000, description="cases in one digest; the rest waits")
    timeout: Duration = Field(timedelta(seconds=10), description="of one delivery")
    link: str = Field("", description="such as https://fallow.example/case/{finding}; empty = none")

    @model_validator(mode="after")
    def _check_channels(self) -> Self:
        """Refuse names of channels that are not defined."""
        named = {*self.default, *self.operators, *(n for ns in self.owners.values() for n in ns)}
        unknown = sorted(named - set(self.channels))
        if unknown:
            legal = ", ".join(sorted(self.channels)) or "none is defined"
            raise ValueError(f"no channel {', '.join(unknown)}; notices.channels has: {legal}")
        return self


class JupyterHubSettings(SettingsGroup):
    """The JupyterHub whose users' servers may be stopped."""

    url: str = Field("", description="such as https://hub.example; empty = there is none")
    token: SecretStr = Field(
        SecretStr(""), description="needs the scopes read:servers, servers and delete:servers"
    )
    timeout: Duration = Field(timedelta(seconds=10), description="of one request")


class CanarySettings(SettingsGroup):
    """A Deployment of Fallow's own that is stopped and restored, to prove that acting works."""

    image: str = Field(
        "", description="image that runs until it is stopped, such as pause; empty = no canary"
    )
    namespace: str = Field("fallow-canary", min_length=1, description="of its own, for it alone")
    name: str = Field("fallow-canary", min_length=1, description="of the Deployment")
    every: Duration = Field(
        timedelta(hours=6), ge=timedelta(minutes=10), description="time between two runs"
    )
    timeout: Duration = Field(
        timedelta(minutes=5),
        ge=timedelta(seconds=10),
        description="it must be Ready by then, before and after a run, or the run has failed",
    )


class ActionsSettings(SettingsGroup):
    """Whether and how carefully Fallow acts. Nothing acts while `enabled` is false."""

    enabled: bool = Field(False, description="let the service act by its policies")
    context: str = Field("", description="kubeconfig context to act in; empty = kubernetes.context")
    policies: Path = Field(Path("policies"), description="folder of policies")
    journal: Path | None = Field(None, description="SQLite file; unset = journal.sqlite under home")
    actor: str = Field("", description="who acts, for the journal; empty = the user of the system")
    every: Duration = Field(
        timedelta(seconds=60), ge=timedelta(seconds=5), description="time between two turns"
    )
    evidence_age: Duration = Field(
        timedelta(seconds=60),
        gt=timedelta(0),
        le=timedelta(minutes=5),
        description="evidence older than this is read again, or nothing is done",
    )
    settle: Duration = Field(
        timedelta(minutes=10), description="pods must be deleted by then, else it is not sticking"
    )
    stick: Duration = Field(
        timedelta(minutes=2),
        description="it must stay unreverted for so long before it is done",
    )
    wait: Duration = Field(
        timedelta(minutes=30),
        ge=timedelta(minutes=1),
        le=timedelta(hours=24),
        description="a write that waits for what the one before brings about is given up then",
    )
    reverted_within: Duration = Field(
        timedelta(minutes=30),
        description="what is undone this soon was reverted by a controller, not by its owner",
    )
    watch: Duration = Field(
        timedelta(days=14), description="how long an action can be undone and is watched"
    )
    concurrent: int = Field(2, ge=1, le=100, description="actions whose outcome is open at a time")
    retired_clusters: list[str] = Field(
        [],
        description="clusters whose actors ended for good: budgets of the whole fleet do not wait "
        "for their journals",
    )
    freeze_file: Path | None = Field(
        None, description="nothing acts while it exists; unset = FREEZE under home"
    )
    freeze_configmap: str = Field(
        "fallow-freeze", description="ConfigMap beside the Lease; frozen: true in it freezes"
    )
    lease: LeaseSettings = LeaseSettings()
    breaker: BreakerSettings = BreakerSettings()
    back_off: BackOffSettings = BackOffSettings()
    jupyterhub: JupyterHubSettings = JupyterHubSettings()
    canary: CanarySettings = CanarySettings()
