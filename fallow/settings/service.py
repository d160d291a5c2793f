"""Settings of the service: its warehouse, its schedules and where it answers."""

from datetime import timedelta
from typing import Literal

from pydantic import ByteSize, Field, SecretStr

from fallow.settings.groups import S3, Duration, S3Keys, SettingsGroup
from fallow.shards import MOST_SHARDS


class WarehouseSettings(SettingsGroup):
    """Where rows live and for how long."""

    catalog: str = Field(
        "", description="empty = SQLite under home; postgres:... = PostgreSQL, several writers"
    )
    read_catalog: str = Field(
        "",
        description="what readers (queries, pages, MCP, Python) open in place of a catalog in "
        "PostgreSQL: the same database with a role that has only USAGE on its schema and SELECT on "
        "its tables, of later ones by ALTER DEFAULT PRIVILEGES; empty = catalog",
    )
    data: str = Field("", description="Parquet folder or s3:// prefix; empty = under home")
    cold: str = Field("", description="cold tier: folder or s3:// prefix; empty = under home")
    s3: S3 = S3()
    read_s3: S3Keys = Field(
        S3Keys(), description="keys of readers: s3:GetObject and s3:ListBucket; empty = those of s3"
    )
    raw_days: int = Field(7, ge=1, description="days of raw samples kept hot, then archived cold")
    warm_days: int = Field(60, ge=1, description="days of 5-minute rollups kept, then hourly cold")
    threads: int = Field(0, ge=0, description="engine threads; 0 = the cores or CPU quota")
    memory_limit: str = Field(
        "",
        description="engine memory such as 2GB; empty = half of the cgroup's limit or RAM. "
        "`fallow warehouse query` ends where it takes half as much again, result and text included",
    )
    query_within: Duration = Field(
        timedelta(minutes=5),
        gt=timedelta(0),
        description="time of a query of pages, `fallow.connect`, `fallow mcp` and "
        "`fallow warehouse query`: then it ends",
    )
    workers: Literal["local", "ray"] = Field(
        "local", description="where heavy stages run: local = this machine; ray = a Ray cluster"
    )
    processes: int = Field(
        0,
        ge=0,
        le=256,
        description="local processes of a heavy stage, or its tasks at once on Ray; 0 = locally "
        "none (the engine's threads in this process), on Ray what its CPUs allow",
    )
    ray_address: str = Field(
        "",
        description="ray://head:10001, or host:port of the head from a machine of the cluster; "
        "empty = the cluster that this machine is in",
    )
    queue_rows: int = Field(
        100_000,
        ge=0,
        description="rows that wait in memory while PostgreSQL or S3 is away; more go to disk",
    )
    queue_bytes: ByteSize = Field(
        ByteSize(2 * 1024**3),
        ge=0,
        description="files that wait under home then; at this bound the newest rows are refused",
    )
    future_tolerance: Duration = Field(
        timedelta(minutes=2), description="rows later than now plus this are refused"
    )


class ServiceSettings(SettingsGroup):
    """The schedules of `fallow up`, and where it answers."""

    collect_every: Duration = timedelta(seconds=60)
    inventory_every: Duration = timedelta(minutes=2)
    rollup_every: Duration = timedelta(minutes=5)
    analyze_every: Duration = timedelta(minutes=15)
    maintain_every: Duration = timedelta(hours=1)
    listen: str = Field(
        "127.0.0.1:9410", description="host:port of /metrics, /healthz, /readyz and /v1"
    )
    token: SecretStr = Field(
        SecretStr(""), description="what /v1 asks for; empty = /v1 answers on loopback only"
    )
    url: str = Field("", description="where pages find /v1; empty = http:// and service.listen")
    idleness_per_minute: int = Field(
        600, ge=1, description="requests to /v1/idleness per minute; more are answered with 429"
    )
    shard: str = Field(
        "", description="the targets that this collector collects: 2/8 = the second of eight shards"
    )
    shards: int = Field(
        1,
        ge=1,
        le=MOST_SHARDS,
        description="how many collectors divide the targets; without service.shard the ordinal at "
        "the end of the host's name (-0, -1, ...) says which shard this one is",
    )
    grace: Duration = Field(
        timedelta(minutes=10),
        ge=timedelta(0),
        description="a job that is later than three of its periods and this is not ready",
    )
    stop_within: Duration = Field(
        timedelta(seconds=90),
        ge=timedelta(0),
        description="time that running jobs get after SIGTERM; then the process ends without them",
    )
