"""Find the symptom of a workload: from faults to plain under-use, the first one counts."""

from collections.abc import Mapping

import msgspec

from analyzers.sizing import fault_symptoms, underuse
from analyzers.sizing.fitting import compute_need, list_options
from analyzers.sizing.limits import get_limit
from analyzers.sizing.rows import WorkloadUse
from analyzers.sizing.symptoms import Symptom
from capacity.workload_kinds import is_interactive
from fallow.settings.workloads import SizingSettings


def diagnose(
    row: WorkloadUse, prices: Mapping[str, float], settings: SizingSettings
) -> Symptom | None:
    """Return the symptom of a workload that wastes a part of its hours; None = it has none.

    `prices` are dollars per GPU-hour on its cluster, by model. Few hours at work confirm only a
    hang.
    """
    symptom = _find_symptom(row, prices, settings)
    if symptom is None or not 0 < symptom.share <= 1:
        return None
    if row.thin and symptom.kind != "busy_hang":
        return msgspec.structs.replace(symptom, evidence="suspected")
    return symptom


def _find_symptom(
    row: WorkloadUse, prices: Mapping[str, float], settings: SizingSettings
) -> Symptom | None:
    first = (
        fault_symptoms.detect_hang(row)
        or fault_symptoms.detect_straggler(row)
        or fault_symptoms.detect_starved(row, settings)
        or fault_symptoms.detect_input_bound(row)
        or fault_symptoms.detect_comm_bound(row)
    )
    if first is not None or (row.dram or 0) >= get_limit("memory_bound"):
        return first
    need = compute_need(row, settings)
    small = row.eff is not None and row.eff < get_limit("low_eff")
    if need is not None and small and row.sm_peak is not None:
        options = list_options(row, need, prices, settings)
        if options:
            return underuse.build_smaller(row, options)
    if is_interactive(row.workload_kind):
        return None
    if row.sm is not None and row.sm < settings.low_depth:
        shallow = underuse.detect_shallow(row)
        if shallow is not None:
            return shallow
    if row.act is not None and row.act < settings.low_duty:
        return underuse.detect_seldom(row, settings)
    return None
