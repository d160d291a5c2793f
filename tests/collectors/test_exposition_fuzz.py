"""A bounded run of the coverage-guided fuzzer; the long ones are run by hand."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

HARNESS = Path(__file__).resolve().parents[1] / "fuzz" / "fuzz_exposition.py"


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris (dependency group fuzz) is not installed",
)
def test_the_fuzzer_finds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(HARNESS), "-runs=800", "-max_len=400", "-seed=7"]
    done = subprocess.run(
        [*command, f"-artifact_prefix={tmp_path}/"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Done 800 runs" in done.stderr
