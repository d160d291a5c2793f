"""Start moto's server: an S3-compatible endpoint over HTTP, and other AWS services beside it."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def serving() -> Iterator[str]:
    """Run it on a free port until the block ends; yield its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{url}/moto-api/", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None
                time.sleep(0.1)  # a foreign process starts in its own time
        else:
            raise AssertionError("moto's server did not start")
        yield url
    finally:
        server.terminate()
        server.wait(10)


def make_bucket(endpoint: str, bucket: str) -> None:
    """Create an empty bucket."""
    request = urllib.request.Request(f"{endpoint}/{bucket}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()
