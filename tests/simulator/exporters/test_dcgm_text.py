"""The texts have dcgm-exporter's own shape, to the byte."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from collectors.series import resolve
from fallow.errors import UsageError
from fallow.gpu_models import find_gpu_model
from simulator.exporters.dcgm import RECOMMENDED, SHIPPED, Texts
from simulator.exporters.device_catalog import read_fields, read_models
from simulator.exporters.quirks import Quirks
from simulator.models import Block, DeviceAllocation, Holder
from tests.simulator.exporters import fleet

PLAIN = Quirks.of()


def render_text(
    block: Block,
    tick: int,
    node: str,
    quirks: Quirks,
    *,
    allocations: Sequence[DeviceAllocation] = (),
    counters: str = RECOMMENDED,
) -> bytes | None:
    return Texts(quirks, counters).text(block, tick, node, allocations)


def said(node: str, quirks: Quirks = PLAIN, counters: str = SHIPPED) -> str:
    body = render_text(fleet.block(), 1, node, quirks, counters=counters)
    assert body is not None
    return body.decode()


def shape(body: str) -> list[str]:
    """Return a text with the words of its labels and the digits of its values made the same."""
    plain = re.sub(r'="[^"]*"', '="x"', body)
    lines = plain.split("\n")
    return [re.sub(r"(?<=} )\S+$", lambda m: re.sub(r"\d+", "9", m[0]), line) for line in lines]


def test_a_node_prints_what_the_reference_prints_line_by_line(
    reference: Callable[[str], Path],
) -> None:
    sample = reference("samples/h100_node.prom").read_text()
    assert shape(said(fleet.A)) == shape(sample)


def test_mig_lines_are_the_references_but_for_the_spelling_of_the_host(
    reference: Callable[[str], Path],
) -> None:
    sample = set(shape(reference("samples/mig_a100_node.prom").read_text()))
    mine = set(shape(said(fleet.B, Quirks.of(["hostname-lower:rate=1"]))))
    assert sample <= mine


def test_mig_instances_have_no_utilisation_and_their_own_memory() -> None:
    body = said(fleet.B)
    assert "_UTIL{" not in body
    assert "PCIE_TX" not in body
    assert body.count("DCGM_FI_DEV_FB_USED{") == 5
    free = re.findall(r'FB_FREE\{.*GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",.*} (\d+)', body)
    used = re.findall(r'FB_USED\{.*GPU_I_PROFILE="3g.20gb",GPU_I_ID="1",.*} (\d+)', body)
    assert int(free[0]) + int(used[0]) == 19968
    power = set(re.findall(r'POWER_USAGE\{gpu="0".*} (\S+)', body))
    assert len(power) == 1


def test_sm_active_is_a_recommended_counter_and_memory_temperature_needs_hbm() -> None:
    assert "SM_ACTIVE" not in said(fleet.A)
    assert said(fleet.A, counters="recommended").count("DCGM_FI_PROF_SM_ACTIVE{") == 8
    assert "MEMORY_TEMP" not in said(fleet.C)


def test_an_xid_says_its_code_and_message() -> None:
    shown = fleet.block()
    shown.xid[6] = 31
    body = (render_text(shown, 0, fleet.A, PLAIN) or b"").decode()
    assert 'container="main",err_code="31",err_msg="GPU memory page fault",namespace=' in body
    assert body.count('err_code="0",err_msg="No Error"') == 7


def test_every_text_is_prometheus_text_and_every_field_means_its_column() -> None:
    for node in (fleet.A, fleet.B, fleet.C):
        families = list(text_string_to_metric_families(said(node, counters="recommended")))
        assert families
    labels = {"UUID": "GPU-1", "gpu": "0", "Hostname": "n"}
    for field in read_fields():
        for name in (field.name, field.name_46):
            series = resolve(name, labels)
            assert series is not None
            assert (series.column, series.scale) == (field.column, field.scale)


def test_the_drivers_names_are_the_canonical_models() -> None:
    for name, model in read_models().items():
        known = find_gpu_model(model.name)
        assert known is not None
        assert known.gpu_model == name


def test_a_template_is_made_again_when_a_pod_goes_and_never_shows_the_old_one() -> None:
    plan = list(fleet.PLAN)
    first, texts = fleet.block(), Texts(PLAIN)
    assert b"jupyter-alice-0" in (texts.text(first, 0, fleet.A) or b"")
    plan[4] = (-1, fleet.FREE)
    assert b"jupyter-alice-0" not in (texts.text(fleet.block(plan=plan), 0, fleet.A) or b"")
    assert texts.text(first, 1, fleet.A) == render_text(first, 1, fleet.A, PLAIN)


def test_labels_are_escaped_and_percent_signs_stay() -> None:
    odd = Holder("u", 'n"s', "p%d\\x", "c\n", "Job", "w", "t")
    shown = fleet.block()
    shown = msgspec.structs.replace(shown, holders=(odd, *shown.holders[1:]))
    body = render_text(shown, 0, fleet.A, PLAIN)
    found = {
        (s.labels.get("namespace"), s.labels.get("pod"), s.labels.get("container"))
        for f in text_string_to_metric_families((body or b"").decode())
        for s in f.samples
    }
    assert ('n"s', "p%d\\x", "c\n") in found


def test_a_node_that_is_not_there_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="there is no node 'nowhere'"):
        render_text(fleet.block(), 0, "nowhere", PLAIN)
