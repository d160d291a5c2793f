"""Fallow lives as the container's user, on a read-only root, with one volume and a /tmp."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.test_acting_whole import Exporter
from tests.cli.test_acting_whole import exporter as exporter  # noqa: PLC0414  (a fixture)
from tests.runtime.test_roles import answer, until

ROOT = Path(__file__).resolve().parents[2]
UID = 65532
HOME = "/var/lib/fallow"
WORLD = """
import os, sys
from pathlib import Path

assert (os.getuid(), os.getgid()) == ({uid}, {uid}), (os.getuid(), os.getgid())
for place in ("/", "/etc", "/var", "/var/lib", sys.prefix):
    try:
        Path(place, "fallow-probe").touch()
    except OSError:
        continue
    raise SystemExit(f"{{place}} can be written")
for place in ("/tmp", "{home}"):
    Path(place, "probe").touch()
    Path(place, "probe").unlink()
"""
UP = "from runtime.cli import main; main()"


def jail(volume: Path, *words: str) -> list[str]:
    """Return a command in the world that the chart gives a pod; skip where none can be made."""
    found = shutil.which("bwrap")
    if found is None:
        pytest.skip("no bwrap here (Debian: apt-get install bubblewrap)")
    seen = dict.fromkeys(map(str, (sys.base_prefix, sys.prefix, ROOT)))
    world = [found, "--unshare-user", "--uid", str(UID), "--gid", str(UID), "--die-with-parent"]
    world += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    world += [word for path in seen for word in ("--ro-bind", path, path)]
    world += ["--tmpfs", "/var/lib", "--bind", str(volume), HOME, "--remount-ro", "/var/lib"]
    ran = subprocess.run([*world, "true"], capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip(f"no namespaces here: {ran.stderr.strip()}")
    return [*world, "--chdir", HOME, *words]


@contextmanager
def up(volume: Path, **environ: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run `fallow up` in there; yield the process and the pid to signal."""
    result, tells = os.pipe()
    words = (sys.executable, "-c", UP, "up", "--listen", "127.0.0.1:0")
    roles = ("--role", "collector", "--role", "analyzer", "--role", "actor")
    command = jail(volume, *words, *roles)
    command[1:1] = ["--info-fd", str(tells)]
    plain = {"PATH": os.environ["PATH"], "HOME": "/tmp", "PYTHONPATH": str(ROOT), **environ}
    with subprocess.Popen(
        command, env=plain, pass_fds=[tells], stderr=subprocess.PIPE, text=True
    ) as process:
        os.close(tells)
        with os.fdopen(result) as lines:
            pid = int(json.load(lines)["child-pid"])
        watchdog = threading.Timer(280, process.kill)
        watchdog.start()
        try:
            yield process, pid
        finally:
            watchdog.cancel()
            process.kill()  # it is over, or it failed


def test_nothing_but_the_volume_and_tmp_can_be_written(tmp_path: Path) -> None:
    probe = WORLD.format(uid=UID, home=HOME)
    ran = subprocess.run(
        jail(tmp_path, sys.executable, "-c", probe), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_it_collects_gets_ready_and_stops_there(tmp_path: Path, exporter: Exporter) -> None:
    exporter.labels = {"node": "n1", "space": "a", "pod": "p"}
    output = {"FALLOW_HOME": HOME, "FALLOW_EXPORTERS__TARGETS": f'["{exporter.url}"]'}
    with up(tmp_path, PYTHONDONTWRITEBYTECODE="1", **output) as (process, pid):
        url = f"http://{until(process, 'up')['listen']}"
        until(process, "maintained")
        while (now := answer(f"{url}/readyz")) != (200, "ready\n"):
            assert now[0] == 503, now  # the turn is over a moment after its log
        os.kill(pid, signal.SIGTERM)
        assert process.stderr is not None
        rest = process.stderr.read()
        assert process.wait() == 0, rest
    assert "stopped; nothing is half-written" in rest
    kept = {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*") if path.is_file()}
    assert kept, "the warehouse lies on the volume"
