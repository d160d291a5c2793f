"""What a killed process left in the temp folder is removed by the next run."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from fallow.system.process_folders import open_temporary_folder

HOLD = """
import sys
from fallow.system.process_folders import open_temporary_folder
with open_temporary_folder("simulate") as folder:
    (folder / "rows").write_text("1")
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_the_folder_of_a_killed_process_is_removed_and_those_in_use_stay(
    temp_folder: Path,
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        left_over = Path(process.stdout.readline().strip())
        with open_temporary_folder("simulate"):
            assert (left_over / "rows").exists()
        process.send_signal(signal.SIGKILL)
    assert (left_over / "rows").exists()
    elsewhere = temp_folder / f"fallow-simulate-other{socket.gethostname()}-{process.pid}-0"
    other_kind = temp_folder / f"fallow-scan-{socket.gethostname()}-{process.pid}-0"
    elsewhere.mkdir()
    other_kind.mkdir()
    with open_temporary_folder("simulate") as first, open_temporary_folder("simulate") as second:
        assert set(temp_folder.iterdir()) == {first, second, elsewhere, other_kind}
    assert set(temp_folder.iterdir()) == {elsewhere, other_kind}


def test_an_earlier_process_with_the_same_number_has_left_its_folder(temp_folder: Path) -> None:
    earlier = temp_folder / f"fallow-simulate-{socket.gethostname()}-{os.getpid()}-0"
    earlier.mkdir()
    with open_temporary_folder("simulate") as folder:
        assert list(temp_folder.iterdir()) == [folder]
