"""dcgm-exporter's `/metrics`: one text per node, in its order, with its labels and number formats.

Line and label order follow the exporter's own template (reference domain dossier 1.1, 1.5). A
node's text is a template that is built again only when something other than a value has changed: a
pod, an XID, a gap.
"""

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from fallow.errors import UsageError
from simulator.exporters.device_catalog import (
    BLANKS,
    ExporterField,
    format_bus,
    get_model,
    read_fields,
    read_xids,
)
from simulator.exporters.device_telemetry import DeviceTelemetry, SharedSeries, distort
from simulator.exporters.quirks import Quirks
from simulator.models import Block, DeviceAllocation, Holder, SimulatedDevice

DRIVER = "570.133.20"
SHIPPED, RECOMMENDED = "shipped", "recommended"
"""Lists of counters: the exporter's default one, and with SM_ACTIVE."""
_SPELLINGS = ("names_46", "lower", "exported", "beside_instances", "twice")
_EXPORTER = {"container": "dcgm-exporter", "namespace": "gpu-operator"}
_WHEN = "\x00"


class _Template(msgspec.Struct, frozen=True):
    """A node's text without its values, and the position of each value."""

    made_of: tuple[object, ...]
    text: str
    wanted: list[int]
    blank: list[int]
    """The text at a missing value."""


class Texts:
    """The texts of all nodes of a world, tick by tick; for use by one thread at a time."""

    def __init__(self, quirks: Quirks, counters: str = RECOMMENDED) -> None:
        self._quirks = quirks
        self._fields = [
            i for i, f in enumerate(read_fields()) if f.shipped or counters == RECOMMENDED
        ]
        self._templates: dict[str, _Template] = {}
        self._block: Block | None = None
        self._tick = -1
        self._telemetry: DeviceTelemetry | None = None
        self._places: dict[str, list[int]] = {}
        self._fleet: tuple[SimulatedDevice, ...] = ()

    def text(
        self, block: Block, tick: int, node: str, allocations: Sequence[DeviceAllocation] = ()
    ) -> bytes | None:
        """Return the response of a node's exporter at a tick of a block; None = no response.

        Raises:
            UsageError: the block has no such node.
        """
        telemetry = self._telemetry_at(block, tick, allocations)
        node_devices = self._places.get(node)
        if node_devices is None:
            raise UsageError(
                f"there is no node {node!r} with GPUs",
                hint=f"nodes: {', '.join(sorted(self._places)[:8])}, ...",
            )
        if telemetry.silent[node_devices[0], 0]:
            return None
        copies = [c for c in telemetry.copies if c.when[0] and c.device in set(node_devices)]
        template = self._template(node, telemetry, node_devices, copies)
        values = np.concatenate(
            [
                telemetry.values[:, node_devices, 0].ravel(),
                telemetry.gpu_values[:, node_devices, 0].ravel(),
                *(c.values[:, 0] for c in copies),
            ]
        )[template.wanted]
        numbers = values.tolist()
        for place in np.flatnonzero(np.isnan(values)).tolist():
            numbers[place] = template.blank[place]
        text = template.text % tuple(numbers)
        skew = telemetry.skew_s[node_devices[0]]
        if np.isnan(skew):
            return text.replace(_WHEN, "").encode()
        timestamp_ms = round((float(telemetry.ticks[0]) + float(skew)) * 1000)
        return text.replace(_WHEN, f" {timestamp_ms}").encode()

    def _telemetry_at(
        self, block: Block, tick: int, allocations: Sequence[DeviceAllocation]
    ) -> DeviceTelemetry:
        if self._telemetry is None or self._block is not block or self._tick != tick:
            self._telemetry = distort(
                block, self._quirks, allocations=allocations, first=tick, last=tick + 1
            )
            self._block, self._tick = block, tick
        if block.devices is not self._fleet:
            self._places, self._fleet = {}, block.devices
            for place, device in enumerate(block.devices):
                self._places.setdefault(device.node, []).append(place)
        return self._telemetry

    def _template(
        self,
        node: str,
        telemetry: DeviceTelemetry,
        node_devices: list[int],
        copies: Sequence[SharedSeries],
    ) -> _Template:
        xid = next(i for i, f in enumerate(read_fields()) if f.column == "xid")
        names = [
            telemetry.holders[h] if h >= 0 else None
            for h in telemetry.holder[node_devices, 0].tolist()
        ]
        made_of = (
            tuple(telemetry.devices[i] for i in node_devices),
            tuple(names),
            tuple((c.device, c.holder, c.shared, float(c.values[xid, 0])) for c in copies),
            tuple(telemetry.values[xid, node_devices, 0].tolist()),
            tuple(bool(getattr(telemetry, n)[node_devices].any()) for n in _SPELLINGS),
        )
        template = self._templates.get(node)
        if template is None or template.made_of != made_of:
            template = _Writer(telemetry, node_devices, names, copies).template(
                self._fields, made_of
            )
            self._templates[node] = template
        return template


class _Writer:
    """Writes one node's template."""

    def __init__(
        self,
        telemetry: DeviceTelemetry,
        node_devices: list[int],
        names: Sequence[Holder | None],
        copies: Sequence[SharedSeries],
    ) -> None:
        self._seen, self._mine, self._names, self._copies = telemetry, node_devices, names, copies
        first = node_devices[0]
        self._lower, self._exported = bool(telemetry.lower[first]), bool(telemetry.exported[first])
        self._names_46, self._twice = bool(telemetry.names_46[first]), bool(telemetry.twice[first])
        self._lines: list[str] = []
        self._wanted: list[int] = []
        self._blank: list[int] = []

    def template(self, field_numbers: Sequence[int], made_of: tuple[object, ...]) -> _Template:
        """Return the template of some fields."""
        for number in field_numbers:
            field = read_fields()[number]
            name = field.name_46 if self._names_46 else field.name
            start = len(self._lines)
            help_text = field.help.replace("%", "%%")
            self._lines += [f"# HELP {name} {help_text}\n", f"# TYPE {name} {field.type}\n"]
            self._family(number, field, name)
            if len(self._lines) == start + 2:
                del self._lines[start:]
        return _Template(made_of, "".join(self._lines), self._wanted, self._blank)

    def _family(self, number: int, field: ExporterField, name: str) -> None:
        telemetry, node_devices = self._seen, self._mine
        size = len(node_devices)
        gpus_written: set[str] = set()
        for at, place in enumerate(node_devices):
            device = telemetry.devices[place]
            if (
                telemetry.beside_instances[place]
                and field.per_gpu
                and device.uuid not in gpus_written
            ):
                gpus_written.add(device.uuid)
                gpu = msgspec.structs.replace(device, profile=None, instance=None)
                where = (len(read_fields()) + number) * size + at
                value = telemetry.gpu_values[number, place, 0]
                self._line(name, field, self._labels(gpu, None, field, value), where)
            if not telemetry.printed[number, place]:
                continue
            copies = [(i, c) for i, c in enumerate(self._copies) if c.device == place]
            if not any(c.shared for _, c in copies):
                value = telemetry.values[number, place, 0]
                labels = self._labels(device, self._names[at], field, value)
                self._line(name, field, labels, number * size + at)
            for replica, (i, copy) in enumerate(copies):
                where = 2 * len(read_fields()) * size + i * len(read_fields()) + number
                share = str(replica) if copy.shared else None
                value = copy.values[number, 0]
                labels = self._labels(device, copy.holder, field, value, share)
                self._line(name, field, labels, where)

    def _line(self, name: str, field: ExporterField, labels: str, where: int) -> None:
        form = "%d" if field.whole else "%.6f"
        line = f"{name}{{{labels}}} {form}{_WHEN}\n"
        blank = _INTEGER_BLANKS.get(field.blank, 0)
        for _ in range(1 + self._twice):
            self._lines.append(line)
            self._wanted.append(where)
            self._blank.append(blank)

    def _labels(
        self,
        device: SimulatedDevice,
        holder: Holder | None,
        field: ExporterField,
        value: float,
        share: str | None = None,
    ) -> str:
        labels = {
            "gpu": str(device.index),
            "UUID": device.uuid,
            "pci_bus_id": format_bus(device.index),
            "device": f"nvidia{device.index}",
            "modelName": get_model(device).name,
        }
        if device.instance is not None:
            labels |= {"GPU_I_PROFILE": device.profile or "", "GPU_I_ID": str(device.instance)}
        labels["hostname" if self._lower else "Hostname"] = device.node
        driver = "DCGM_FI_SYSTEM_DRIVER_VERSION" if self._names_46 else "DCGM_FI_DRIVER_VERSION"
        labels[driver] = DRIVER
        attributes = self._attributes(device, holder, share)
        if field.column == "xid":
            code = 0 if np.isnan(value) else int(value)
            message = read_xids().get(code, "Unknown Error")
            attributes |= {"err_code": str(code), "err_msg": message}
        labels |= dict(sorted(attributes.items()))
        return quote_labels(labels).replace("%", "%%")

    def _attributes(
        self, device: SimulatedDevice, holder: Holder | None, share: str | None
    ) -> dict[str, str]:
        labels_found: dict[str, str] = {}
        if holder is not None:
            labels_found = {
                "container": holder.container,
                "namespace": holder.namespace,
                "pod": holder.pod,
            }
        if self._exported:
            labels_found = {f"exported_{name}": value for name, value in labels_found.items()}
            labels_found |= {**_EXPORTER, "pod": name_exporter_pod(device.node)}
        return labels_found if share is None else {**labels_found, "vgpu": share}


_INTEGER_BLANKS = {
    "i32": int(BLANKS["i32"]),
    "i64": 9223372036854775794,  # no double is exactly this
    "f64": int(BLANKS["f64"]),
}


def name_exporter_pod(node: str) -> str:
    """Return the name of the exporter's own pod on a node."""
    return f"dcgm-exporter-{sum(map(ord, node)) * 2654435761 % 2**24:06x}"


def quote_labels(labels: Mapping[str, str]) -> str:
    """Return labels as they stand between braces."""
    return ",".join(f'{name}="{_escape(value)}"' for name, value in labels.items())


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
