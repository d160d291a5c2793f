"""A hint says the ranges and the lines, changes nothing, and is checked afterwards."""

from datetime import UTC, datetime
from typing import Any

import pytest

from actions.hints.precision import PrecisionExecutor, format_hint
from analyzers.precision.gains import list_formats
from fallow.action_models import Intent
from fallow.errors import RefusedError
from fallow.models import Subject
from fallow.precision_lines import read_framework_lines
from tests.actions.places import Place, bare
from tests.actions.reclaim.examples import decided, trained

RANGES = [{"format": "TF32", "times_as_fast": [1.34, 2.12]}]
SAID = {"ranges": RANGES, "why": "fp32 asleep", "assumptions": ["peak rates are dense"]}
VERB = "let tensor cores do FP32's matrix work"
START = datetime(2026, 11, 1, tzinfo=UTC)
WHOM = Subject("c", "ml", "PyTorchJob", "bert")


def intended(place: Place, **said: Any) -> Intent:
    about = decided("PyTorchJob", place.name, "x", VERB, parameters=said)
    return PrecisionExecutor().writes(about, place.door)


def test_the_owner_reads_range_lines_and_assumptions_and_the_undo_is_exact(place: Place) -> None:
    spec = trained("pytorchReplicaSpecs")
    before = place.make("PyTorchJob", {"metadata": {"name": "x"}, "spec": spec})
    intent = intended(place, **SAID)
    place.send(*intent.changes)
    after = place.get("PyTorchJob", "x")
    assert after is not None
    text = after["metadata"]["annotations"]["fallow.dev/hint"]
    assert "TF32: 1.34 to 2.12 times as fast, estimated." in text
    assert "PyTorch: torch.set_float32_matmul_precision('high')" in text
    assert "Assumed: peak rates are dense." in text
    assert after["spec"] == before["spec"]
    with pytest.raises(RefusedError, match="carries this hint already"):
        intended(place, **SAID)
    place.send(*intent.undo)
    assert bare(place.get("PyTorchJob", "x")) == bare(before)


def test_without_a_range_there_is_no_hint() -> None:
    with pytest.raises(RefusedError, match="holds no range"):
        format_hint({}, "x")


def test_every_format_that_is_advised_has_lines_and_every_verb_an_executor() -> None:
    advised = {
        (f.format, f.verb)
        for kind in ("fp32_asleep", "fp8", "low_bit_weights")
        for arch in ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell")
        for f in list_formats(kind, arch)
    }
    assert {name for name, _ in advised} == set(read_framework_lines())
    assert {verb for _, verb in advised} == set(PrecisionExecutor.verbs)
