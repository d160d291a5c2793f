"""Find the devices allocated to a pod in its own objects: DRA claims and HAMi annotations.

Each entry of `pod.devices` is `{"device", "share", "source"}`. `share` is absent where the source
does not report how much of the device the pod may use. A DRA instance has its MIG UUID with
`parent` and `profile`.
"""

import math
import re
from collections.abc import Iterable, Mapping

import msgspec

from collectors.kube.shapes import CustomObject, Meta
from fallow.errors import UNREADABLE_JSON
from fallow.kube.dra_devices import SliceDevice, read_key, read_slices
from fallow.kube.values import get_map, list_maps

HAMI_ALLOCATED = re.compile(r"^hami\.io/.*-devices-allocated$")
HAMI_REGISTERED = re.compile(r"^hami\.io/node-(.*-register|register-.*)$")
_HAMI_FIELDS = 4
_LEGACY_FIELDS = 7
_PERCENT = 100
_EXCERPT = 64
MOST_MIB = 2**33
"""Memory of a device in MiB that is believed: 8 PiB."""


class PodDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One device allocated to a pod."""

    device: str
    share: float | None = None
    source: str | None = None
    parent: str | None = None
    profile: str | None = None
    memory_bytes: int | None = None
    estimated: bool = False
    """No register of the node has the device."""
    gpus: float | None = None
    """The pod's share of a physical GPU, where that is not the share of the device."""


class HamiDevice(msgspec.Struct, frozen=True):
    """A physical device that HAMi registered on a node; memory in MiB."""

    id: str
    count: int = 1
    devmem: float = 0
    type: str = ""


def read_hami_register(annotations: Mapping[str, str] | None) -> list[HamiDevice]:
    """Return the physical devices of a HAMi node; both the JSON and the older text form."""
    devices: dict[str, HamiDevice] = {}
    for key, text in (annotations or {}).items():
        if HAMI_REGISTERED.match(key):
            for device in _parse_register(text):
                devices.setdefault(device.id, device)
    return list(devices.values())


def _parse_register(text: str) -> list[HamiDevice]:
    if text.lstrip().startswith("["):
        try:
            return msgspec.json.decode(text, type=list[HamiDevice])
        except UNREADABLE_JSON:
            return []
    out = []
    for entry in filter(None, text.split(":")):
        fields = entry.split(",")
        if len(fields) >= _LEGACY_FIELDS and _is_amount(fields[1]) and _is_amount(fields[2]):
            out.append(HamiDevice(fields[0], int(fields[1]), float(fields[2]), fields[4]))
    return out


def read_hami_devices(
    annotations: Mapping[str, str] | None, register: Mapping[str, float]
) -> list[PodDevice]:
    """Return what HAMi allocated to a pod: `UUID,type,memMB,cores:` per device, `;` per container.

    The share is the greater of the core share and the memory share (`register`: the node's devices
    with their MiB). A device that several containers use has the sum of their shares, at most 1.
    """
    annotation_map = annotations or {}
    if annotation_map.get("hami.io/bind-phase") == "failed":
        return []
    shares: dict[str, float | None] = {}
    memory: dict[str, int] = {}
    texts = [text for key, text in annotation_map.items() if HAMI_ALLOCATED.match(key)]
    for entry in re.split(r"[:;]", ":".join(texts)):
        fields = entry.split(",")
        if len(fields) != _HAMI_FIELDS or not fields[0]:
            continue
        uuid = fields[0].partition("[")[0]  # an instance is UUID[template-position]
        mib, cores = _parse_number(fields[2]), _parse_number(fields[3])
        total = register.get(uuid) or math.inf  # unknown memory does not limit the share
        shares_known = max(cores / _PERCENT, mib / total)
        memory[uuid] = memory.get(uuid, 0) + int(mib * 2**20)
        if shares_known:
            shares[uuid] = min((shares.get(uuid) or 0) + shares_known, 1.0)
        else:
            shares.setdefault(uuid, None)
    return [
        PodDevice(
            uuid, share, "hami", memory_bytes=memory[uuid] or None, estimated=uuid not in register
        )
        for uuid, share in shares.items()
    ]


def limit_shares(devices: list[PodDevice], limit: float) -> list[PodDevice]:
    """Return the devices with shares that sum to at most `limit`; a share not known is 1."""
    total = sum(1.0 if d.share is None else d.share for d in devices)
    if total <= limit + 1e-9:
        return devices
    return [
        msgspec.structs.replace(d, share=(1.0 if d.share is None else d.share) * limit / total)
        for d in devices
    ]


def _parse_number(text: str) -> float:
    """Return an amount; a text that is no number, a negative or an impossible one is 0."""
    try:
        value = float(text)
    except ValueError:
        return 0.0
    return value if 0 < value <= MOST_MIB else 0.0


def _is_amount(text: str) -> bool:
    return text.isascii() and text.isdigit() and float(text) <= MOST_MIB


def list_unsound_amounts(annotations: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return HAMi's allocations with an amount that no device has, each with its beginning."""
    texts = [(key, text) for key, text in annotations.items() if HAMI_ALLOCATED.match(key)]
    return [
        (key, entry[:_EXCERPT])
        for key, text in texts
        for entry in re.split(r"[:;]", text)
        if len(fields := entry.split(",")) == _HAMI_FIELDS
        and any(
            amount and not _parse_number(amount) and not _is_zero(amount) for amount in fields[2:]
        )
    ]


def _is_zero(text: str) -> bool:
    return not text.strip("0. ")


class Dra:
    """Devices that resource claims allocate to pods, by pod UID, and devices by node."""

    def __init__(
        self, slices: Iterable[CustomObject] = (), claims: Iterable[CustomObject] = ()
    ) -> None:
        self._offered = read_slices(s.spec for s in slices if s.spec)
        self._by_pod: dict[str, list[tuple[PodDevice, str | None]]] = {}
        for claim in claims:
            self._read(claim)

    def claimed(self, pod: Meta) -> list[tuple[PodDevice, str | None]]:
        """Return the devices of one pod, each with its node: None = any, "" = no slice has it."""
        return self._by_pod.get(pod.uid, [])

    def on_node(self, node: str) -> list[SliceDevice]:
        """Return the devices that a node's slices offer, instances included."""
        return [d for d in self._offered.values() if d is not None and d.node == node]

    def _read(self, claim: CustomObject) -> None:
        status = claim.status or {}
        users = [
            str(u.get("uid"))
            for u in list_maps(status.get("reservedFor"))
            if u.get("resource") == "pods"
        ]
        devices = get_map(get_map(status.get("allocation")).get("devices"))
        for result in list_maps(devices.get("results")):
            if result.get("adminAccess"):  # an admin claim of monitoring, which holds nothing
                continue
            key = read_key(result)
            offered = self._offered.get(key, SliceDevice("/".join(key), node=""))
            if offered is None:
                continue
            gpus = float(offered.compute_share(result)) / max(len(users), 1)
            device = PodDevice(
                offered.id,
                1.0 if len(users) == 1 else None,
                "dra",
                parent=offered.parent,
                profile=offered.profile,
                gpus=gpus,
            )
            for uid in users:
                self._by_pod.setdefault(uid, []).append((device, offered.node))
