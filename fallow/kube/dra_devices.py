"""Read the GPUs that ResourceSlices offer, each by its driver, pool and name.

A driver of `gpu_drivers.csv` offers GPUs with a `uuid` or without; of other drivers only a device
with a `uuid` is one.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from typing import Any

import msgspec

from fallow.kube.gpu_shares import WHOLE, find_share
from fallow.kube.quantities import parse_quantity
from fallow.kube.values import get_map, list_maps
from fallow.resources import read_table

DeviceKey = tuple[str, str, str]
"""Driver, pool and name: what a claim's allocation names a device by."""


class SliceDevice(msgspec.Struct, frozen=True):
    """A GPU, or a part of one; `share` of a physical GPU, `node` null = of any node."""

    id: str
    parent: str | None = None
    profile: str | None = None
    product: str | None = None
    node: str | None = None
    share: Fraction = WHOLE
    capacity: Mapping[str, Fraction] = {}

    def compute_share(self, result: Mapping[str, Any]) -> Fraction:
        """Return the share of a physical GPU that one result of an allocation consumes."""
        parts = [
            (parse_quantity(text) or Fraction(0)) / self.capacity[name]
            for name, text in get_map(result.get("consumedCapacity")).items()
            if self.capacity.get(name)
        ]
        return self.share * min(max(parts, default=WHOLE), WHOLE)


@cache
def read_gpu_drivers() -> frozenset[str]:
    """Return the DRA drivers whose devices are GPUs (`gpu_drivers.csv`)."""
    return frozenset(row["driver"] for row in read_table("fallow.kube", "gpu_drivers.csv"))


def read_key(result: Mapping[str, Any]) -> DeviceKey:
    """Return what one result of a claim's allocation is the allocation of."""
    return str(result.get("driver")), str(result.get("pool")), str(result.get("device"))


def read_slices(specs: Iterable[Mapping[str, Any]]) -> dict[DeviceKey, SliceDevice | None]:
    """Return the devices of each pool's newest generation; None = no GPU."""
    pools = [(spec, get_map(spec.get("pool"))) for spec in specs]
    newest: dict[tuple[str, str], int] = {}
    for spec, pool in pools:
        key = (str(spec.get("driver")), str(pool.get("name")))
        newest[key] = max(newest.get(key, 0), _get_generation(pool))
    devices: dict[DeviceKey, SliceDevice | None] = {}
    for spec, pool in pools:
        key = (str(spec.get("driver")), str(pool.get("name")))
        if _get_generation(pool) == newest[key]:
            node = spec.get("nodeName")
            for device in list_maps(spec.get("devices")):
                place = (*key, str(device.get("name")))
                devices[place] = _read_device(place, device, node if isinstance(node, str) else "")
    return devices


def _read_device(key: DeviceKey, device: Mapping[str, Any], node: str) -> SliceDevice | None:
    fields = {**device, **get_map(device.get("basic"))}  # before v1 they were under `basic`
    attributes = {
        name.rpartition("/")[2]: str(text)
        for name, value in get_map(fields.get("attributes")).items()
        if (text := get_map(value).get("string"))
    }
    if "uuid" not in attributes and key[0] not in read_gpu_drivers():
        return None
    # A GPU's PCI address is unique on its node; AMD's `parentDeviceID` may be that of a model.
    address = attributes.get("parentPciAddr")
    profile = attributes.get("profile") or attributes.get("partitionProfile")
    sizes = get_map(fields.get("capacity")).items()
    return SliceDevice(
        attributes.get("uuid") or "/".join(key),
        attributes.get("parentUUID") or (f"{key[0]}/{key[1]}/{address}" if address else None),
        profile,
        attributes.get("productName"),
        node or None,
        find_share(profile),
        {
            name: parse_quantity(str(get_map(amount).get("value"))) or Fraction(0)
            for name, amount in sizes
        },
    )


def _get_generation(pool: Mapping[str, Any]) -> int:
    generation = pool.get("generation")
    return generation if isinstance(generation, int) else 0
