"""Series as codes: a known series costs one array element."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from collectors.series import Identity, MetricMapping, Series, parse_host

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ATTRIBUTES = ("node", "parent", "vendor", "model", "profile", "gpu_index")
DEVICE, OWNER, SHARED, WEAK, TARGET, NODE = range(6)
"""Columns of a catalog's table of identities; the codes of the other `ATTRIBUTES` follow."""
WIDTH = 5 + len(ATTRIBUTES)


class CodedSeries(msgspec.Struct, frozen=True):
    """Series as codes of one catalog: three arrays of one length."""

    measure: Ints
    identity: Ints
    bits: Ints

    def __len__(self) -> int:
        """Return how many series there are."""
        return len(self.measure)

    def take(self, index: npt.NDArray[Any]) -> "CodedSeries":
        """Return the codes at these places."""
        return CodedSeries(self.measure[index], self.identity[index], self.bits[index])

    @classmethod
    def joined(cls, parts: Sequence["CodedSeries"]) -> "CodedSeries":
        """Concatenate several of them."""
        if not parts:
            empty = np.zeros(0, np.int64)
            return cls(empty, empty, empty)
        return cls(
            np.concatenate([p.measure for p in parts]),
            np.concatenate([p.identity for p in parts]),
            np.concatenate([p.bits for p in parts]),
        )


class _Words:
    """Interned values: a code per distinct value, -1 for None."""

    def __init__(self) -> None:
        self.codes: dict[Any, int] = {}
        self.values: list[Any] = []

    def code(self, value: Any) -> int:
        if value is None:
            return -1
        code_found = self.codes.setdefault(value, len(self.values))
        if code_found == len(self.values):
            self.values.append(value)
        return code_found


class SeriesCatalog:
    """Series seen so far, as codes: a known series costs one array element."""

    def __init__(self) -> None:
        self._measures = _Words()
        self._identities = _Words()
        self._devices = _Words()
        self._owners = _Words()
        self._pods = _Words()
        self._targets = _Words()
        self._words = {name: _Words() for name in ATTRIBUTES}
        self._coded: list[list[int]] = []
        self._pod_of: list[int] = []
        self.table: Ints = np.zeros((0, WIDTH), np.int64)
        """One row per identity: device, owner, shared, weak, target, then the attributes' codes."""

    def __len__(self) -> int:
        """Return the number of identities."""
        return len(self._coded)

    def code(self, series: Sequence[Series]) -> CodedSeries:
        """Return the codes of some series; new series get new codes."""
        # A target repeats few identities and measures on many lines, as the same objects. Hashing
        # each of their fields every time would be most of the work.
        identities: dict[tuple[int, str], int] = {}
        measures: dict[int, int] = {}
        codes: list[tuple[int, int, int]] = []
        for s in series:
            identity_key, measure_key = (id(s.identity), s.measure.vendor), id(s.measure)
            if identity_key not in identities:
                identities[identity_key] = self.identity(s.identity, s.measure)
            if measure_key not in measures:
                measures[measure_key] = self._measures.code(s.measure)
            codes.append((measures[measure_key], identities[identity_key], s.bits))
        table = np.array(codes, np.int64).reshape(-1, 3)
        return CodedSeries(*(np.ascontiguousarray(table[:, i]) for i in range(3)))

    def identity(self, identity: Identity, measure: MetricMapping) -> int:
        """Return the code of an identity, as a metric of this vendor names it."""
        vendor = identity.vendor or measure.vendor
        weak = 0 if measure.vendor != "hami" else 1 if identity.vendor else 2
        next_code = len(self._coded)
        code = self._identities.code((identity, weak, vendor))
        if code == next_code:
            self._coded.append(self._describe(identity, vendor, weak))
        return code

    def _describe(self, identity: Identity, vendor: str, weak: int) -> list[int]:
        owner = -1
        if identity.pod is not None:
            owner = self._owners.code((identity.namespace, identity.pod, identity.container))
            if owner == len(self._pod_of):
                self._pod_of.append(self._pods.code((identity.namespace, identity.pod)))
        attributes = [
            self._words[name].code(vendor if name == "vendor" else getattr(identity, name))
            for name in ATTRIBUTES
        ]
        device = self._devices.code(identity.device)
        shared = int(identity.shared and identity.pod is not None)
        return [device, owner, shared, weak, self._targets.code(identity.target), *attributes]

    def build_table(self) -> Ints:
        """Return the table of identities, with the newest ones."""
        if len(self.table) != len(self._coded):
            self.table = np.array(self._coded, np.int64).reshape(-1, WIDTH)
        return self.table

    @property
    def measures(self) -> list[MetricMapping]:
        """The measures in the order of their codes."""
        return self._measures.values

    @property
    def devices(self) -> list[str]:
        """The devices in the order of their codes."""
        return self._devices.values

    @property
    def owners(self) -> list[tuple[str | None, str, str | None]]:
        """(namespace, pod, container) in the order of their codes."""
        return self._owners.values

    def pods(self) -> Ints:
        """Return the pod's code of each owner: all containers of one pod are one sharer."""
        return np.array(self._pod_of or [0], np.int64)

    @property
    def hosts(self) -> list[str | None]:
        """The hosts of the exporters' addresses in the order of their codes."""
        return [parse_host(target) for target in self._targets.values]

    def find_devices_of_several(self, column: int) -> Bools:
        """Return which devices have several codes in a column such as `TARGET`, by their codes."""
        device, code = self.table[:, DEVICE], self.table[:, column]
        device, code = device[code >= 0], code[code >= 0]
        least = np.full(len(self.devices), len(self.table))
        most = np.full(len(self.devices), -1)
        np.minimum.at(least, device, code)
        np.maximum.at(most, device, code)
        return least < most

    def words(self, attribute: str) -> list[Any]:
        """Return the values of one attribute in the order of their codes."""
        return self._words[attribute].values

    def device_code(self, device: str) -> int:
        """Return the code of a device, -1 when no series has named it."""
        return self._devices.codes.get(device, -1)
