"""Read facts about fields, models and XIDs from the tables beside this file.

Fields, their order, help texts and DCGM 4.6 names: reference domain dossier 1.1-1.2 and its
sample expositions. Models: names and framebuffer sizes as the driver prints them.
"""

import re
from functools import cache

import msgspec

from fallow.resources import read_table
from simulator.models import SimulatedDevice

BLANKS: dict[str, float] = {"i32": 2147483632, "i64": 9223372036854775794, "f64": 140737488355328.0}
"""DCGM's value for a missing value, by the field's type."""
_PROFILE = re.compile(r"^(\d+)g\.(\d+)gb")
_BUSES = ("18", "2A", "3A", "5D", "9A", "AB", "BA", "DB")
_TYPICAL_MIB = 24576


class ExporterField(msgspec.Struct, frozen=True):
    """One field of the exporter and the `sample` column it becomes."""

    name: str
    name_46: str
    type: str
    whole: bool
    """Printed as a whole number; the others with six decimals."""
    column: str
    scale: float
    """Column units per printed unit."""
    mig: bool
    """MIG instances have it."""
    per_gpu: bool
    """The GPU has it once for all of its instances."""
    prof: bool
    shipped: bool
    """In the exporter's default list of counters."""
    blank: str
    help: str


class DriverModel(msgspec.Struct, frozen=True):
    """A GPU model as its driver describes it."""

    gpu_model: str
    name: str
    memory_mib: float
    reserved_mib: float
    mem_clock_mhz: float
    hbm: bool


@cache
def read_fields() -> tuple[ExporterField, ...]:
    """Return every field in the order of the exporter's list."""
    return tuple(
        msgspec.convert(row, ExporterField, strict=False) for row in _read_rows("fields.csv")
    )


@cache
def read_models() -> dict[str, DriverModel]:
    """Return the models by canonical name."""
    rows = (msgspec.convert(row, DriverModel, strict=False) for row in _read_rows("models.csv"))
    return {model.gpu_model: model for model in rows}


def get_model(device: SimulatedDevice) -> DriverModel:
    """Return a device's model; a model that the table lacks keeps its name."""
    model = read_models().get(device.gpu_model)
    return model or DriverModel(device.gpu_model, device.gpu_model, _TYPICAL_MIB, 256, 1000, False)


def get_memory_mib(device: SimulatedDevice) -> float:
    """Return how much memory a device has, used, free and reserved together."""
    slices = _PROFILE.match(device.profile or "")
    if slices is None:
        return get_model(device).memory_mib
    return int(slices[2]) * 1024 - 128 * (int(slices[1]) + 1)


@cache
def read_xids() -> dict[int, str]:
    """Return the message of each XID."""
    return {int(r["xid"]): r["message"] for r in _read_rows("xids.csv")}


def format_bus(index: int) -> str:
    """Return the PCI address of the GPU with an index."""
    slot = _BUSES[index] if index < len(_BUSES) else f"{(0xC0 + index) & 0xFF:02X}"
    return f"00000000:{slot}:00.0"


def _read_rows(name: str) -> list[dict[str, str]]:
    return read_table("simulator.exporters", name)
