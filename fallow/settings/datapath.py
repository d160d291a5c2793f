"""Settings of the data path: storage classes, datasets, and when work waits for data."""

from decimal import Decimal

from pydantic import AwareDatetime, Field

from fallow.settings.groups import SettingsGroup
from fallow.settings.prices import Usd


class StorageClass(SettingsGroup):
    """A class of storage with the site's own prices."""

    name: str = Field(min_length=1)
    usd_per_gib_month: Usd
    retrieval_usd_per_gib: Usd = Field(Decimal(0), description="of every read")
    write_usd_per_gib: Usd = Field(Decimal(0), description="requests and transfer, once")
    minimum_days: int = Field(0, ge=0, le=3650, description="paid also when it leaves sooner")
    instant: bool = Field(True, description="false = has to be restored before it is read")


class Dataset(SettingsGroup):
    """Data on a claim: its size and class, which no metric collected here tells."""

    name: str = Field(min_length=1)
    namespace: str = Field(min_length=1)
    claim: str = Field(min_length=1, description="PersistentVolumeClaim that pods mount")
    gib: Decimal = Field(gt=0)
    storage_class: str = Field(min_length=1, description="one of datapath.classes")
    stored_since: AwareDatetime | None = Field(
        None, description="unset = its minimum stay is taken to begin now"
    )


class DatapathSettings(SettingsGroup):
    """When work waits for data, and where storage costs too much."""

    activity: float = Field(
        0.50, gt=0, le=1, description="GPU activity of an hour below which it may wait for data"
    )
    input_bps: float = Field(
        50e6, gt=0, description="bytes per second and GPU that come in while it waits"
    )
    least_hours: int = Field(4, ge=1, le=48, description="such hours before a workload is named")
    classes: list[StorageClass] = Field(
        default_factory=list, description="storage with prices: name, usd_per_gib_month ..."
    )
    datasets: list[Dataset] = Field(
        default_factory=list, description="name, namespace, claim, gib, storage_class"
    )
    horizon_days: int = Field(
        90, ge=7, le=3650, description="how long data stays; a move has to pay within it"
    )
    read_margin: float = Field(
        2.0, ge=1, le=100, description="reads may become so many times those seen"
    )
    least_days: int = Field(
        14, ge=1, le=400, description="days of window that tell how data is read"
    )
    coverage: float = Field(
        0.9, gt=0, le=1, description="least share of the readers' life that was watched"
    )
    min_saving_usd: Usd = Field(Decimal(10), description="per month; less is no finding")
    cache_usd_per_gib_month: Usd | None = Field(
        None, description="of local disk; unset = no cache is weighed"
    )
