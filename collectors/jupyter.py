"""Poll notebook servers for kernels and terminals, without causing activity on them.

Every request has `no_track_activity`, so that polling does not make a notebook look active. A busy
kernel is active now, however old its last output is. A server that does not answer every request is
unknown: the row is a failed poll, without a `notebook_sample` row. It is never idle.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from collectors.inventory import build_batches, build_scrape_row
from fallow.collector_settings import JupyterSettings
from fallow.errors import SettingsError, SourceError
from fallow.tables import Batch
from fallow.window import Window

NAME = "jupyter"
CONCURRENCY = 32
"""Servers polled in parallel."""

BUSY = {"busy", "starting", "restarting", "autorestarting"}
"""Kernel states that mean work now or soon."""

_OK, _NOT_FOUND = 200, 404
Row = dict[str, Any]


class Kernel(msgspec.Struct, frozen=True):
    """One kernel as `/api/kernels` lists it."""

    execution_state: str = ""
    last_activity: datetime | None = None


class Terminal(msgspec.Struct, frozen=True):
    """One terminal as `/api/terminals` lists it."""

    last_activity: datetime | None = None


class JupyterStatus(msgspec.Struct, frozen=True):
    """The answer of `/api/status`."""

    last_activity: datetime | None = None
    connections: int | None = None


class NotebookServer(msgspec.Struct, frozen=True):
    """One notebook server and the pod it runs in."""

    namespace: str
    pod: str
    url: str


class JupyterCollector:
    """Yields one `notebook_sample` per server that answers, and a `scrape` row for each."""

    def __init__(
        self,
        settings: JupyterSettings,
        cluster: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._settings, self._cluster, self._clock = settings, cluster, clock
        self._servers = [parse_server(text) for text in settings.servers]

    def collect(self, window: Window) -> Iterator[Batch]:
        """Poll every server once; the window only means that a poll is due."""
        del window
        answers = asyncio.run(self._fetch_all())
        yield from build_batches("notebook_sample", (row for row, _ in answers if row))
        yield from build_batches("scrape", (scrape for _, scrape in answers))

    async def _fetch_all(self) -> list[tuple[Row | None, Row]]:
        timeout = aiohttp.ClientTimeout(total=self._settings.timeout.total_seconds())
        gate = asyncio.Semaphore(CONCURRENCY)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            return list(
                await asyncio.gather(*(self._fetch(session, gate, s) for s in self._servers))
            )

    async def _fetch(
        self, session: aiohttp.ClientSession, gate: asyncio.Semaphore, server: NotebookServer
    ) -> tuple[Row | None, Row]:
        async with gate:
            start, row, error = self._clock(), None, None
            try:
                get = partial(_get, session, server, self._authorize(server))
                kernels = await get("kernels", list[Kernel])
                status = await get("status", JupyterStatus)
                # A server without the API has no information about terminals: null.
                terminals = await get("terminals", list[Terminal], optional=True)
                row = self._row(server, start, kernels or [], terminals, status or JupyterStatus())
            except SourceError as failure:
                error = failure.message
            except TimeoutError:
                error = f"no answer within {self._settings.timeout.total_seconds():g} s"
            except (aiohttp.ClientError, OSError) as failure:
                error = f"no answer: {str(failure) or type(failure).__name__}"
            scrape = build_scrape_row(
                NAME,
                server.url,
                cluster=self._cluster,
                start=start,
                end=self._clock(),
                samples=1 if row else 0,
                error=error,
            )
            return row, scrape

    def _authorize(self, server: NotebookServer) -> dict[str, str]:
        """Return the header with the token; a server whose URL has a password gets that alone."""
        token = self._settings.token.get_secret_value()
        if not token or urlsplit(server.url).username is not None:
            return {}
        return {"Authorization": f"token {token}"}

    def _row(
        self,
        server: NotebookServer,
        ts: datetime,
        kernels: list[Kernel],
        terminals: list[Terminal] | None,
        status: JupyterStatus,
    ) -> Row:
        busy = sum(kernel.execution_state in BUSY for kernel in kernels)
        return {
            "cluster": self._cluster,
            "ts": ts,
            "namespace": server.namespace,
            "pod": server.pod,
            "kernels": len(kernels),
            "busy_kernels": busy,
            "last_kernel_activity": ts if busy else _find_latest(kernels),
            "terminals": None if terminals is None else len(terminals),
            "last_terminal_activity": _find_latest(terminals or []),
            "connections": status.connections,
            "last_activity": ts if busy else status.last_activity,
        }


def parse_server(text: str) -> NotebookServer:
    """Read `namespace/pod=http://host:8888/`.

    Raises:
        SettingsError: it is not of that form.
    """
    where, _, url = text.partition("=")
    namespace, _, pod = where.partition("/")
    parts = urlsplit(url)
    if not namespace or not pod or parts.scheme not in {"http", "https"} or not parts.hostname:
        raise SettingsError(
            f"jupyter.servers: {text!r} is not namespace/pod=http://host:port/",
            hint="for instance ml/ada-0=http://ada.ml.svc:8888/",
        )
    return NotebookServer(namespace, pod, url.rstrip("/"))


def _find_latest(items: list[Kernel] | list[Terminal]) -> datetime | None:
    return max((i.last_activity for i in items if i.last_activity), default=None)


async def _get(
    session: aiohttp.ClientSession,
    server: NotebookServer,
    headers: Mapping[str, str],
    path_name: str,
    shape: type[Any],
    *,
    optional: bool = False,
) -> Any:
    url = f"{server.url}/api/{path_name}"
    request = session.get(
        url, params={"no_track_activity": "1"}, headers=headers, allow_redirects=False
    )
    async with request as answer:
        if optional and answer.status == _NOT_FOUND:
            return None
        if answer.status != _OK:
            raise SourceError(
                f"HTTP {answer.status} from /api/{path_name}{_explain_failure(answer.status)}"
            )
        body = await answer.read()
    try:
        return msgspec.json.decode(body, type=shape)
    except msgspec.DecodeError as error:
        raise SourceError(f"/api/{path_name} is not Jupyter's answer: {error}") from error


def _explain_failure(status: int) -> str:
    return {
        301: ": the server lies behind a login",
        302: ": the server lies behind a login",
        401: ": jupyter.token is missing or wrong",
        403: ": jupyter.token is missing or wrong",
    }.get(status, "")
