"""Settings of the dashboard: its address, who may sign in, and the budget of finance."""

from datetime import timedelta
from typing import Self

from pydantic import Field, SecretStr, field_validator, model_validator

from fallow.settings.groups import Duration, SettingsGroup, TimeZone
from fallow.settings.prices import Usd

LEAST_SECRET = 32
"""Characters of the secret that signs cookies: 32 random ones cannot be guessed."""


class OidcSettings(SettingsGroup):
    """Sign-in by OpenID Connect; without `metadata_url` the dashboard answers on loopback only."""

    metadata_url: str = Field("", description="https://.../.well-known/openid-configuration")
    client_id: str = ""
    client_secret: SecretStr = SecretStr("")
    redirect_uri: str = Field("", description="https://HOST/oauth2callback, as people reach it")
    cookie_secret: SecretStr = Field(
        SecretStr(""), description="signs the cookie of who is signed in: 32 random characters"
    )
    scope: str = Field("openid profile email", description="asked of the provider")
    name_claim: str = Field("email", description="claim that names the person in the journal")
    verified_email: bool = Field(
        True,
        description="an e-mail counts only with `email_verified: true`; false where the provider "
        "sends no such claim and verifies its addresses",
    )
    roles_claim: str = Field(
        "groups", description="claim that holds roles; dots go down: realm_access.roles"
    )
    viewers: list[str] = Field(
        default_factory=list, description="values of that claim that may read"
    )
    operators: list[str] = Field(
        default_factory=list, description="values that may also snooze and keep"
    )
    approvers: list[str] = Field(
        default_factory=list, description="values that may also approve and undo"
    )
    session: Duration = Field(
        timedelta(hours=12),
        ge=timedelta(minutes=5),
        le=timedelta(days=30),
        description="how long a sign-in holds; roles are read again at the next",
    )

    @property
    def on(self) -> bool:
        """Whether users have to sign in."""
        return bool(self.metadata_url)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.on:
            return self
        for name in ("client_id", "redirect_uri"):
            if not getattr(self, name):
                raise ValueError(f"{name} is needed where metadata_url is set")
        if not self.client_secret.get_secret_value():
            raise ValueError("client_secret is needed where metadata_url is set")
        if len(self.cookie_secret.get_secret_value()) < LEAST_SECRET:
            raise ValueError(f"cookie_secret needs {LEAST_SECRET} characters or more")
        if not (self.viewers or self.operators or self.approvers):
            raise ValueError("nobody could sign in: name viewers, operators or approvers")
        return self


class DashboardSettings(SettingsGroup):
    """Where the dashboard answers and who may see it."""

    listen: str = Field(
        "127.0.0.1:8501", description="host:port; other than loopback only with oidc"
    )
    base_path: str = Field("", description="path under which a proxy serves it, such as fallow")
    hosts: list[str] = Field(
        default_factory=list, description="host names it answers to; empty = any with oidc"
    )
    time_zone: TimeZone = Field("UTC", description="the time zone of office hours")
    office_hours: tuple[int, int] = Field(
        (8, 20), description="first hour and the hour after the last, Monday to Friday"
    )
    approve_without_sign_in: bool = Field(
        False, description="without oidc every user of the machine may approve, undo and resume"
    )
    oidc: OidcSettings = OidcSettings()

    @field_validator("office_hours")
    @classmethod
    def _a_day(cls, hours: tuple[int, int]) -> tuple[int, int]:
        first, last = hours
        if not 0 <= first < last <= 24:  # noqa: PLR2004  (a day's)
            raise ValueError("write two hours of a day in order, such as [8, 20]")
        return hours


class FinanceSettings(SettingsGroup):
    """What was planned, beside what was paid."""

    usd_per_month: Usd | None = Field(None, gt=0, description="budget of a calendar month")
    teams_usd_per_month: dict[str, Usd] = Field(
        default_factory=dict, description="budgets of teams"
    )
