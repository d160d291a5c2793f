"""Exporters whose every answer has a number of its own, so that each stored row names its answer.

The energy counter of each GPU is that number: `BASE_MJ + number * STEP_MJ`. It rises as the energy
of a GPU at 100 W does when it is read every two seconds, and no two answers of one exporter have
the same.
"""

import gzip
import threading
import time
from contextlib import suppress
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BASE_MJ, STEP_MJ = 0, 200_000
MODEL = "NVIDIA H100 80GB HBM3"
FAULTS = ("hang", "drip", "bomb", "refuse")


@cache
def _make_bomb() -> bytes:
    """Return 200 MB of empty lines in 0.2 MB."""
    return gzip.compress(b"\n" * 200_000_000, 6)


class CountingExporter:
    """One node's exporter. `answers` are the numbers that were sent whole, with their times."""

    def __init__(self, node: str, gpus: int) -> None:
        self.node, self.gpus = node, gpus
        self.fault: str | None = None
        self.answers: dict[int, float] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._calm = threading.Event()
        self._calm.set()
        exporter = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                with suppress(OSError):
                    exporter.answer(self)

            def log_message(self, *_args: object) -> None:
                """Keep quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}/metrics"

    def close(self) -> None:
        """Listen no more; answers that hang are cut."""
        self.end()
        self._server.shutdown()
        self._server.server_close()

    def device(self, gpu: int) -> str:
        """Return the UUID of one of its GPUs."""
        return f"GPU-{self.node}-{gpu}"

    def begin(self, fault: str) -> None:
        """Misbehave from now on: hang, drip, bomb or refuse."""
        self._calm.clear()
        self.fault = fault

    def end(self) -> None:
        """Behave again; answers that hang are cut."""
        self.fault = None
        self._calm.set()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        """Send the next answer, or what the present fault makes of it."""
        match self.fault:
            case "hang":
                self._calm.wait()
            case "refuse":
                request.send_error(503)
            case "bomb":
                _send(request, _make_bomb(), encoding="gzip")
            case "drip":
                self._drip(request)
            case _:
                with self._lock:
                    self._number += 1
                    number = self._number
                _send(request, self._text(number))
                self.answers[number] = time.time()

    def _drip(self, request: BaseHTTPRequestHandler) -> None:
        body = self._text(0)
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        for at in range(len(body)):
            request.wfile.write(body[at : at + 1])
            if self._calm.wait(1.0):
                return

    def _text(self, number: int) -> bytes:
        lines = []
        for gpu in range(self.gpus):
            words = (
                f'gpu="{gpu}",UUID="{self.device(gpu)}",modelName="{MODEL}",Hostname="{self.node}"'
            )
            lines += [
                f"DCGM_FI_DEV_GPU_UTIL{{{words}}} 35",
                f"DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{words}}} 0.35",
                f"DCGM_FI_DEV_POWER_USAGE{{{words}}} 100",
                f"DCGM_FI_DEV_FB_USED{{{words}}} 4096",
                f"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{words}}} {BASE_MJ + number * STEP_MJ}",
            ]
        return ("\n".join(lines) + "\n").encode()


def number_of(energy_mj: int) -> int:
    """Return the number of the answer that a stored row is from."""
    number, rest = divmod(energy_mj - BASE_MJ, STEP_MJ)
    if rest:
        raise ValueError(f"no exporter of the soak ever sent {energy_mj} mJ")
    return number


def _send(request: BaseHTTPRequestHandler, body: bytes, encoding: str = "") -> None:
    request.send_response(200)
    request.send_header("Content-Type", "text/plain; version=0.0.4")
    if encoding:
        request.send_header("Content-Encoding", encoding)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
    request.wfile.flush()
