"""Run slices on a Ray cluster (extra `fallow[ray]`).

Ray places the tasks and restarts those whose worker died. Every worker needs this version of
Fallow, the same Python and DuckDB, and must reach the catalog and the data files itself.
"""

import importlib
import os
import platform
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import duckdb

from fallow import __version__
from fallow.errors import SettingsError, TemporaryError, WarehouseError, advise_extra
from warehouse.extensions import is_packaged
from warehouse.runners.slices import ATTEMPTS, fail_stage

S = TypeVar("S")
T = TypeVar("T")

CONNECT_S = 5
"""A head that does not greet within this is away; Ray itself waits for minutes, or for good."""
_HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""What a gRPC client sends first (RFC 9113, 3.4): the server answers with its settings."""
_KIND, _SETTINGS = 3, 4
"""A frame begins with three bytes of length, then its kind."""
ANSWER_S = 60
"""A node that does not tell its versions within this cannot run slices."""
EXTENSIONS = ("ducklake", "postgres_scanner", "sqlite_scanner", "httpfs")
LOCAL = "local"
"""The address that starts a Ray of this machine alone: for tests and trials."""


class RayRunner:
    """The workers of one Ray cluster."""

    def __init__(self, address: str, *, tasks: int = 0, cpus: int | None = None) -> None:
        """Connect, and compare the workers' versions with this process's.

        `address`: host:port of the head, or empty for the cluster that this machine is in. `tasks`:
        how many run at the same time, 0 = as Ray's CPUs allow. `cpus`: of a local Ray.

        Raises:
            SettingsError: the extra is not installed, or the address is none.
            TemporaryError: the address does not answer.
            WarehouseError: a worker has other versions, or lacks Fallow.
        """
        self._ray = _import_ray()
        _check_address(address)
        options: dict[str, Any] = {"num_cpus": cpus} if address == LOCAL else {}
        try:
            self._ray.init(
                address=address or "auto",
                log_to_driver=False,
                ignore_reinit_error=True,
                include_dashboard=False if address == LOCAL else None,
                configure_logging=False,
                **options,
            )
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise _explain_absence(address, error) from error
        self._tasks = tasks or max(1, int(self._ray.cluster_resources().get("CPU", 1)))
        try:
            self._check_workers()
        except BaseException:
            self.close()
            raise

    @property
    def concurrency(self) -> int:
        """How many slices run at the same time."""
        return self._tasks

    def map(self, task: Callable[[S], T], slices: Sequence[S]) -> list[T]:
        """Return the task's result for each slice, in their order; see `Runner`."""
        run = self._ray.remote(num_cpus=1, max_retries=0)(wrap_task(task))
        results: dict[int, T] = {}
        attempts = dict.fromkeys(range(len(slices)), 0)
        waiting = list(range(len(slices)))
        running: dict[Any, int] = {}
        while waiting or running:
            while waiting and len(running) < self._tasks:
                number = waiting.pop(0)
                attempts[number] += 1
                running[run.remote(slices[number])] = number
            (ready, *_), _ = self._ray.wait(list(running), num_returns=1)
            number = running.pop(ready)
            try:
                results[number] = self._ray.get(ready)
            except Exception as error:  # a task's own error, or Ray's for a worker that died
                if attempts[number] >= ATTEMPTS:
                    for other in running:
                        self._ray.cancel(other, force=True)
                    raise fail_stage(slices[number], self._explain(error)) from error
                waiting.append(number)
        return [results[n] for n in range(len(slices))]

    def close(self) -> None:
        """Disconnect; a Ray of this machine alone stops."""
        with suppress(Exception):
            self._ray.shutdown()

    def _check_workers(self) -> None:
        """Compare what each node has with what this process has."""
        affinity = importlib.import_module("ray.util.scheduling_strategies")
        remote_versions = self._ray.remote(num_cpus=0, max_retries=0)(read_versions)
        mine = read_versions()
        for node in self._ray.nodes():
            if not node["Alive"]:
                continue
            name = node["NodeManagerHostname"]
            place = affinity.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            try:
                reference = remote_versions.options(scheduling_strategy=place).remote()
                theirs = self._ray.get(reference, timeout=ANSWER_S)
            except Exception as error:
                raise WarehouseError(
                    f"the Ray worker on {name} cannot run Fallow {__version__}: "
                    f"{self._explain(error)}",
                    hint="use one image for Fallow and for the Ray cluster",
                ) from error
            check_versions(name, mine, theirs)

    def _explain(self, error: BaseException) -> BaseException:
        """Return what ended a task: its own exception, or a sentence about its worker."""
        kinds = self._ray.exceptions
        if isinstance(error, kinds.OutOfMemoryError):
            return RuntimeError("its Ray worker had no memory left")
        if isinstance(error, kinds.WorkerCrashedError | kinds.NodeDiedError):
            return RuntimeError(f"its Ray worker ended ({type(error).__name__})")
        cause = getattr(error, "cause", None)
        return cause if isinstance(cause, BaseException) else error


def read_versions() -> dict[str, str]:
    """Return what must be equal in every worker, and the engine's extensions that it lacks."""
    return {
        "fallow": __version__,
        "python": ".".join(platform.python_version_tuple()[:2]),
        "duckdb": duckdb.__version__,
        "lacks": " ".join(name for name in EXTENSIONS if not is_packaged(name)),
    }


def check_versions(node: str, mine: dict[str, str], theirs: dict[str, str]) -> None:
    """Refuse a worker whose results could differ, or that cannot open the warehouse.

    Raises:
        WarehouseError: naming the node and what it has or lacks.
    """
    if lacks := sorted({*theirs["lacks"].split()} - {*mine["lacks"].split()}):
        raise WarehouseError(
            f"the Ray worker on {node} lacks the engine's extension {lacks[0]}",
            hint=f"there: pip install duckdb-extension-{lacks[0].replace('_', '-')}"
            f"=={duckdb.__version__}",
        )
    for name in ("fallow", "python", "duckdb"):
        if theirs[name] != mine[name]:
            raise WarehouseError(
                f"the Ray worker on {node} has {name} {theirs[name]}, this process {mine[name]}",
                hint="use one image for Fallow and for the Ray cluster",
            )


def wrap_task(task: Callable[[S], T]) -> Callable[[S], T]:
    """Return a plain function: Ray does not take a partial one."""

    def run(part: S) -> T:
        return task(part)

    return run


def _import_ray() -> Any:
    try:
        import ray  # noqa: PLC0415  (an extra of 285 MB)
    except ImportError as error:
        raise SettingsError(
            "warehouse.workers is ray, and the extra is not installed",
            hint=f"{advise_extra('ray')}, or set warehouse.workers to local",
        ) from error
    return ray


def _check_address(address: str) -> None:
    """Refuse an address that is none, and one at which no gRPC server greets.

    Raises:
        SettingsError: it is no host and port.
        TemporaryError: nothing answers there, or not a Ray head.
    """
    if address in {"", LOCAL}:
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise SettingsError(
            f"warehouse.ray_address {address!r} is no address of a Ray head",
            hint="legal: ray://HOST:PORT (port 10001), HOST:PORT (6379) from a machine of the "
            "cluster, or nothing for the cluster that this machine is in",
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as head:
            if os.environ.get("RAY_USE_TLS", "0") == "0":
                _refuse_stranger(head)
    except (OSError, OverflowError) as error:
        raise _explain_absence(address, error) from error


def _refuse_stranger(head: socket.socket) -> None:
    """Raise an OSError where a connection's other end does not greet as gRPC does."""
    head.sendall(_HTTP2_PREFACE)
    greeting = b""
    while len(greeting) <= _KIND:
        more = head.recv(_KIND + 1 - len(greeting))
        if not more:
            raise ConnectionError("it closed the connection; it is no Ray head")
        greeting += more
    if greeting[_KIND] != _SETTINGS:
        raise ConnectionError("what listens there is no Ray head")


def _explain_absence(address: str, error: Exception) -> TemporaryError:
    return TemporaryError(
        f"Ray at {address or 'this machine'} does not answer: {error}",
        hint="check warehouse.ray_address, that the Ray head runs (ray status) and that "
        "RAY_AUTH_TOKEN is the head's; or set warehouse.workers to local",
    )
