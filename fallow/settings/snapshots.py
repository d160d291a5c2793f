"""Settings of snapshots: their store, their largest size, and what they leave out."""

from datetime import timedelta
from typing import Literal

from pydantic import Field

from fallow.settings.groups import S3, Duration, SettingsGroup


class SnapshotSettings(SettingsGroup):
    """What is kept of a workload before it is stopped, and where."""

    store: str = Field("", description="folder or s3://bucket/prefix; empty = snapshots under home")
    s3: S3 = S3()
    encryption: Literal["", "AES256", "aws:kms"] = Field(
        "",
        description="the encryption that the bucket is asked for; empty = the bucket's own default",
    )
    kms_key: str = Field("", description="key for aws:kms; empty = the account's own")
    max_bytes: int = Field(
        10 << 30, ge=1 << 20, description="of one archive, unpacked; more is no snapshot"
    )
    timeout: Duration = Field(
        timedelta(seconds=60), description="of silence, after which an archive is given up"
    )
    ready_within: Duration = Field(
        timedelta(minutes=10), description="for a VolumeSnapshot to be ready to use"
    )
    paths: list[str] = Field(
        default_factory=list, description="folders to archive; empty = the container's $HOME"
    )
    exclude: list[str] = Field(
        default_factory=list, description="names that tar leaves out, such as .cache (GNU tar)"
    )
