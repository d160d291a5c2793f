"""Start the peers' real servers on loopback, and stop them."""

import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class PeerMissingError(RuntimeError):
    """Say which Debian package would bring the peer."""


def find_binary(name: str, package: str) -> str:
    """Return the path of a peer's program.

    Raises:
        PeerMissingError: it is not installed.
    """
    path_found = shutil.which(name)
    if path_found is None:
        raise PeerMissingError(f"{name} is not installed (Debian package {package})")
    return path_found


def find_free_port() -> int:
    """Return a port of loopback that nobody holds at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def serve(command: list[str], ready: str, log: Path) -> Iterator[int]:
    """Run a server until the block ends, once `ready` answers 200; yields its process id."""
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
        try:
            _await(ready, process, log)
            yield process.pid
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await(ready: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"{process.args!r} ended: {log.read_text()[-800:]}")
        try:
            with urllib.request.urlopen(ready, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"{ready} did not answer: {log.read_text()[-800:]}")


@contextmanager
def run_prometheus(data: Path) -> Iterator[str]:
    """Serve a folder of blocks with Debian's Prometheus; yields its base URL."""
    port = find_free_port()
    config = data.parent / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1h}\n")
    command = [
        find_binary("prometheus", "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address=127.0.0.1:{port}",
        "--query.timeout=15m",
        "--query.max-samples=500000000",
    ]
    url = f"http://127.0.0.1:{port}"
    with serve(command, f"{url}/-/ready", data.parent / "prometheus.log"):
        yield url


@contextmanager
def run_receiving(folder: Path, *, block: str) -> Iterator[tuple[str, int]]:
    """Serve an empty Prometheus that takes writes; yields its base URL and process id.

    `block`: it keeps this much in its head, so that it compacts nothing while we measure.
    """
    folder.mkdir()
    port = find_free_port()
    config = folder / "prometheus.yml"
    config.write_text("global: {scrape_interval: 1h}\n")
    command = [
        find_binary("prometheus", "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=100y",
        f"--storage.tsdb.min-block-duration={block}",
        f"--storage.tsdb.max-block-duration={block}",
        "--web.enable-remote-write-receiver",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    url = f"http://127.0.0.1:{port}"
    with serve(command, f"{url}/-/ready", folder / "prometheus.log") as pid:
        yield url, pid


@contextmanager
def run_victoria_metrics(data: Path) -> Iterator[str]:
    """Serve an empty folder with Debian's VictoriaMetrics; yields its base URL."""
    port = find_free_port()
    command = [
        find_binary("victoria-metrics", "victoria-metrics"),
        f"-storageDataPath={data}",
        f"-httpListenAddr=127.0.0.1:{port}",
        "-retentionPeriod=100y",
        "-search.maxUniqueTimeseries=10000000",
        "-search.maxSamplesPerQuery=10000000000",
        "-search.maxQueryDuration=15m",
        "-search.disableCache",
    ]
    url = f"http://127.0.0.1:{port}"
    with serve(command, f"{url}/health", data.parent / "victoria.log"):
        yield url
