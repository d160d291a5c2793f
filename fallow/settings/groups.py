"""Define what groups of settings share: unknown keys are refused, durations are written `30m`."""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr
from pydantic import PlainSerializer as Serialize

from fallow.errors import UsageError
from fallow.redaction import SECRET_NAME, find_secrets
from fallow.window import format_duration, parse_duration


def _parse_duration(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return parse_duration(value)
    except UsageError as error:
        raise ValueError(str(error)) from error


Duration = Annotated[
    timedelta,
    BeforeValidator(_parse_duration),
    Serialize(lambda d: format_duration(d.total_seconds()), return_type=str),
]


def _check_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f"there is no time zone {name!r}: write one such as Europe/Berlin or UTC"
        ) from error
    return name


TimeZone = Annotated[str, AfterValidator(_check_zone)]


class SettingsGroup(BaseModel):
    """A group of settings; unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class S3Keys(SettingsGroup):
    """Keys of an S3-compatible endpoint."""

    access_key_id: str = Field("", description="empty = the AWS credential chain")
    secret_access_key: SecretStr = Field(SecretStr(""), description="empty = the AWS chain")


class S3(S3Keys):
    """Any S3-compatible endpoint; empty fields follow the AWS environment."""

    endpoint: str = Field("", description="URL such as http://127.0.0.1:9000; empty = AWS")
    region: str = Field("", description="empty = AWS_REGION or us-east-1")
    path_style: bool = Field(True, description="address buckets by path, as most others want")


def list_secrets(value: Any) -> Iterator[str]:
    """Yield every secret of settings: secret fields, and secrets inside URLs and DSNs.

    A header is a secret when its name says so: X-Scope-OrgID has words that other texts have.
    """
    match value:
        case BaseModel():
            for field in type(value).model_fields:
                yield from list_secrets(getattr(value, field))
        case Mapping():
            for name, part in value.items():
                if not isinstance(part, SecretStr) or SECRET_NAME.fullmatch(str(name)):
                    yield from list_secrets(part)
        case list() | tuple():
            for part in value:
                yield from list_secrets(part)
        case SecretStr():
            text = value.get_secret_value()
            yield from (text, text.rpartition(" ")[2])  # a header has a scheme before its token
            yield from find_secrets(text)
        case str():
            yield from find_secrets(value)
