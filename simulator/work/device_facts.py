"""Compute watts, degrees and clocks of a GPU, by model.

Power of an H100 that computes is 134 + 610 x SM_ACTIVE W, limited to 700 W; 120 W with an idle CUDA
context, whatever memory is allocated; 70 W without one
(telemetry-and-waste.md#signals and #idle; arXiv 2605.23918). Other models keep the H100's
proportions with their own numbers in `fallow/gpu_models.csv`: the base is 134/120 of their idle
context, and full activity would need 744/700 of their limit, which limits it as on the H100.

Temperature settles at 24 degrees plus 36 at the limit: a straight line through Acme's A100s, whose
quantiles of power and temperature pair 62 W with 28, 322 W with 51 and 401 W with 63 degrees.
Clocks are the data sheets' boost clocks (`clocks.csv`), less 12 % under full load. NVLink's peak
there is that of the data sheet, both directions together; 0 = the model has none.
"""

from collections.abc import Sequence
from functools import cache

import msgspec
import numpy as np

from fallow.gpu_models import read_gpu_models
from simulator.models import SimulatedDevice
from simulator.work.chance import Array
from simulator.work.distributions import read

H100_BASE_W, H100_CONTEXT_W, H100_SM_W, H100_LIMIT_W = 134.0, 120.0, 610.0, 700.0
AMBIENT_C, LOAD_C = 24.0, 36.0
SAG = 0.12
GIGA = 1e9
SETTLE_S = 90.0
"""Time constant of a GPU's temperature."""


class DeviceFacts(msgspec.Struct, frozen=True):
    """Facts of each device's GPU, [device, 1]."""

    bare_w: Array
    context_w: Array
    base_w: Array
    sm_w: Array
    limit_w: Array
    memory_mib: Array
    """Of the device: an instance has its profile's part."""
    boost_mhz: Array
    rest_mhz: Array
    nvlink_bps: Array
    """The peak of each direction; 0 = no NVLink."""


def build_device_facts(devices: Sequence[SimulatedDevice]) -> DeviceFacts:
    """Return the facts of every device's GPU.

    Raises:
        KeyError: a model that is not in `fallow/gpu_models.csv`.
    """
    by_model = {m.gpu_model: m for m in read_gpu_models()}
    clocks = {row["gpu_model"]: row for row in read("clocks.csv")}
    models = [by_model[d.gpu_model] for d in devices]
    context, limit = (
        _build_column([m.idle_context_w for m in models]),
        _build_column([m.tdp_w for m in models]),
    )
    base = context * (H100_BASE_W / H100_CONTEXT_W)
    memory = [
        _parse_profile_gib(d) or m.memory_gib * d.weight
        for d, m in zip(devices, models, strict=True)
    ]
    return DeviceFacts(
        bare_w=_build_column([m.idle_bare_w for m in models]),
        context_w=context,
        base_w=base,
        sm_w=limit * ((H100_BASE_W + H100_SM_W) / H100_LIMIT_W) - base,
        limit_w=limit,
        memory_mib=_build_column(memory) * 1024,
        boost_mhz=_build_column([float(clocks[d.gpu_model]["boost_mhz"]) for d in devices]),
        rest_mhz=_build_column([float(clocks[d.gpu_model]["rest_mhz"]) for d in devices]),
        nvlink_bps=_build_column(
            [0.0 if d.profile else _read_links()[d.gpu_model] for d in devices]
        ),
    )


def has_nvlink(device: SimulatedDevice) -> bool:
    """Return whether a device is a whole GPU with NVLink."""
    return device.profile is None and _read_links().get(device.gpu_model, 0.0) > 0


@cache
def _read_links() -> dict[str, float]:
    """Return the peak of NVLink in one direction by model, bytes per second."""
    return {row["gpu_model"]: float(row["nvlink_gbs"]) * GIGA / 2 for row in read("clocks.csv")}


def _parse_profile_gib(device: SimulatedDevice) -> float:
    """Return the GiB in a profile's name such as `3g.40gb`, or 0."""
    text = (device.profile or "").partition(".")[2].partition("gb")[0]
    return float(text) if text.isdigit() else 0.0


def _build_column(values: Sequence[float]) -> Array:
    return np.array(values, np.float64)[:, None]
