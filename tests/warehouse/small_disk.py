"""Run a script whose warehouse lies on a file system of 7 MB."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def run_on_small_disk(
    folder: Path, process: Callable[..., subprocess.Popen[str]], text: str, *, ballast: int = 0
) -> dict[str, Any]:
    """Return the JSON that a script prints; its argument is the disk, `ballast` bytes of it used.

    The file system is in a mount namespace of its own: it ends with the process.
    """
    disk = folder / "disk"
    disk.mkdir()
    inside = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    mount = f"mount -t tmpfs -o size=7m tmpfs {disk}"
    if not shutil.which("unshare") or subprocess.run([*inside, mount], check=False).returncode:
        pytest.skip("this machine does not let us mount a small file system")
    script = folder / "script.py"
    script.write_text(text)
    fill = f"head -c {ballast} /dev/zero > {disk}/ballast; " if ballast else ""
    command = f"{mount}; {fill}exec {sys.executable} {script} {disk}"
    ran = process(f"import subprocess, sys; sys.exit(subprocess.call({[*inside, command]!r}))")
    out, _ = ran.communicate(timeout=240)
    assert ran.returncode == 0
    printed: dict[str, Any] = json.loads(out)
    return printed
