"""Read this machine's NVIDIA GPUs through NVML: devices, instances, processes and their pods.

A value that a GPU or driver does not support is null. Without a driver the scrape fails with
"no NVIDIA driver"; no exception is raised.
"""

import os
import socket
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from collectors.inventory import build_batches, build_scrape_row
from collectors.processes import list_pod_names, locate_process
from fallow.gpu_models import get_least_power_w
from fallow.rejections import Rejection, build_batch
from fallow.settings.collectors import NvmlSettings
from fallow.tables import Batch
from fallow.window import Window

NAME = "nvml"
_MILLI = 1000
_MIG = " MIG "
_MEMORY_TEMPERATURE = 82  # NVML_FI_DEV_MEMORY_TEMP
_OWN = {"mem_used_bytes", "mem_free_bytes", "mem_reserved_bytes"}
_OWN |= {"gpu_util_pct", "mem_copy_util_pct", "enc_util_pct", "dec_util_pct"}
# An instance never takes these from its GPU; power, energy, heat and health it does.
Row = dict[str, Any]
ProcessMemory = dict[tuple[str, str], int | None]


class NvmlCollector:
    """Yields `sample`, `holding` and `scrape` rows of one node, as of now.

    `binding` is the `pynvml` module, or a replacement for it.
    """

    def __init__(
        self,
        settings: NvmlSettings,
        cluster: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        binding: Any = None,
    ) -> None:
        self._cluster, self._clock, self._binding = cluster, clock, binding
        self._node = settings.node or os.environ.get("NODE_NAME") or socket.gethostname()
        self._proc_root, self._pod_logs = settings.proc_root, settings.pod_logs
        self._interval_s = settings.interval.total_seconds()

    def collect(self, window: Window) -> Iterator[Batch]:
        """Read once; the window only means that a scrape is due."""
        del window
        nvml = self._binding if self._binding is not None else _import_pynvml()
        start, rows, scrapes = self._clock(), _Rows(), []
        error: str | None = None
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as failure:
            error = _explain_no_driver(nvml, failure)
        else:
            try:
                for index in range(nvml.nvmlDeviceGetCount()):
                    try:
                        self._device(nvml, index, start, rows)
                    except Exception as failure:  # noqa: BLE001  (a driver's bytes choose it)
                        target = f"{self._node}/gpu{index}"
                        scrapes.append(self._scrape(target, start, 0, f"GPU {index}: {failure}"))
            except nvml.NVMLError as failure:
                error = str(failure)
            finally:
                nvml.nvmlShutdown()
        rejections: list[Rejection] = []
        yield from build_batches("sample", rows.samples, rejections)
        yield from build_batches("holding", rows.holdings, rejections)
        if rejections:
            yield build_batch(rejections, cluster=self._cluster, source=NAME, at=start)
        scrapes.append(self._scrape(self._node, start, len(rows.samples), error))
        yield from build_batches("scrape", scrapes)

    def _scrape(self, target: str, start: datetime, samples: int, error: str | None) -> Row:
        return build_scrape_row(
            NAME,
            target,
            cluster=self._cluster,
            start=start,
            end=self._clock(),
            samples=samples,
            error=error,
        )

    def _device(self, nvml: Any, index: int, ts: datetime, rows: "_Rows") -> None:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid, model = (
            _decode_text(f(handle)) for f in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetName)
        )
        common = {
            "cluster": self._cluster,
            "ts": ts,
            "node": self._node,
            "vendor": "nvidia",
            "gpu_index": index,
            "interval_s": self._interval_s,
            "source": NAME,
            "model": model,
        }
        device_values = _read_values(nvml, handle)
        if (device_values["power_w"] or 0.0) < get_least_power_w(model):
            device_values["power_w"] = None
        instances = list(_list_instances(nvml, handle))
        if not instances:
            self._add(nvml, handle, {**common, "device": uuid, **device_values}, rows)
        shared = {k: v for k, v in device_values.items() if k not in _OWN}
        for instance, number in instances:
            identity = {"device": f"{uuid}/gi{number}", "parent": uuid}
            profile = _decode_text(nvml.nvmlDeviceGetName(instance)).partition(_MIG)[2] or None
            row = {
                **common,
                **shared,
                **identity,
                "profile": profile,
                **_read_memory(nvml, instance),
            }
            self._add(nvml, instance, row, rows)

    def _add(self, nvml: Any, handle: Any, row: Row, rows: "_Rows") -> None:
        """Add a device's row; one pod's processes name its holder, several share it."""
        processes = _call(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        row["proc_count"] = None if processes is None else len(processes)
        process_holders = self._process_holders(processes or ())
        if len(process_holders) == 1:
            row["namespace"], row["pod"] = next(iter(process_holders))
        elif process_holders:
            row["sharers"] = len(process_holders)
            for (namespace, pod), used in process_holders.items():
                key = {name: row[name] for name in ("cluster", "ts", "device", "source")}
                rows.holdings.append(
                    {**key, "namespace": namespace, "pod": pod, "mem_used_bytes": used}
                )
        rows.samples.append(row)

    def _process_holders(self, processes: Iterable[Any]) -> ProcessMemory:
        """Return memory by pod; null if the driver does not report the memory of a process."""
        names, holders = list_pod_names(self._pod_logs), ProcessMemory()
        for process in processes:
            where = locate_process(self._proc_root, process.pid)
            who = names.get(where.pod_uid) if where else None
            if who is not None:
                before, used = holders.get(who, 0), process.usedGpuMemory
                holders[who] = None if before is None or used is None else before + used
        return holders


class _Rows:
    """Rows of one scrape."""

    def __init__(self) -> None:
        self.samples: list[Row] = []
        self.holdings: list[Row] = []


def _import_pynvml() -> Any:
    import pynvml  # loads no driver until it is initialised

    return pynvml


def _explain_no_driver(nvml: Any, failure: Exception) -> str:
    absent = (nvml.NVML_ERROR_LIBRARY_NOT_FOUND, nvml.NVML_ERROR_DRIVER_NOT_LOADED)
    if getattr(failure, "value", None) in absent:
        return "no NVIDIA driver"
    return f"the NVIDIA driver cannot be used: {failure}"


def _call(nvml: Any, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return a call's result; None where the GPU or driver does not support it."""
    unsupported = {
        nvml.NVML_ERROR_NOT_SUPPORTED,
        nvml.NVML_ERROR_NOT_FOUND,
        nvml.NVML_ERROR_NO_PERMISSION,
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        nvml.NVML_ERROR_INVALID_ARGUMENT,
    }
    try:
        return function(*arguments)
    except nvml.NVMLError as failure:
        if getattr(failure, "value", None) in unsupported:
            return None
        raise


def _read_values(nvml: Any, handle: Any) -> Row:
    """Read a whole GPU; units become the canonical ones (mW to W, mJ stays)."""
    use = _call(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    power = _call(nvml, nvml.nvmlDeviceGetPowerUsage, handle)
    encoder = _call(nvml, nvml.nvmlDeviceGetEncoderUtilization, handle)
    decoder = _call(nvml, nvml.nvmlDeviceGetDecoderUtilization, handle)
    remapped = _call(nvml, nvml.nvmlDeviceGetRemappedRows, handle)
    return {
        "gpu_util_pct": use.gpu if use else None,
        "mem_copy_util_pct": use.memory if use else None,
        "enc_util_pct": encoder[0] if encoder else None,
        "dec_util_pct": decoder[0] if decoder else None,
        "power_w": None if power is None else power / _MILLI,
        "energy_mj": _call(nvml, nvml.nvmlDeviceGetTotalEnergyConsumption, handle),
        "temp_c": _call(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        "mem_temp_c": _read_memory_temperature(nvml, handle),
        "sm_clock_mhz": _call(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "mem_clock_mhz": _call(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_MEM),
        "throttle_mask": _call(nvml, nvml.nvmlDeviceGetCurrentClocksEventReasons, handle),
        "remapped_uncorrectable": remapped[1] if remapped else None,
        "row_remap_failure": int(bool(remapped[3])) if remapped else None,
        "row_remap_pending": int(bool(remapped[2])) if remapped else None,
        "pcie_replay": _call(nvml, nvml.nvmlDeviceGetPcieReplayCounter, handle),
        "ecc_dbe": _call(
            nvml,
            nvml.nvmlDeviceGetTotalEccErrors,
            handle,
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
        **_read_memory(nvml, handle),
    }


def _read_memory(nvml: Any, handle: Any) -> Row:
    """Read memory; version 2 has the driver's own reserve apart from the used memory."""
    memory = _call(nvml, nvml.nvmlDeviceGetMemoryInfo, handle, nvml.nvmlMemory_v2)
    reserved = getattr(memory, "reserved", None)
    if memory is None:
        memory = _call(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return {
        "mem_used_bytes": getattr(memory, "used", None),
        "mem_free_bytes": getattr(memory, "free", None),
        "mem_reserved_bytes": reserved,
    }


def _read_memory_temperature(nvml: Any, handle: Any) -> float | None:
    field_values = _call(nvml, nvml.nvmlDeviceGetFieldValues, handle, [_MEMORY_TEMPERATURE])
    if not field_values or field_values[0].nvmlReturn != nvml.NVML_SUCCESS:
        return None
    return float(field_values[0].value.uiVal)


def _list_instances(nvml: Any, handle: Any) -> Iterator[tuple[Any, int]]:
    """Yield the MIG devices of a GPU with their GPU instance numbers."""
    mode = _call(nvml, nvml.nvmlDeviceGetMigMode, handle)
    if not mode or mode[0] != nvml.NVML_DEVICE_MIG_ENABLE:
        return
    for slot in range(_call(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _call(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, slot)
        if instance is not None:
            yield instance, int(nvml.nvmlDeviceGetGpuInstanceId(instance))


def _decode_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
