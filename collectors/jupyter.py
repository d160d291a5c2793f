"""Poll notebook servers for kernels and terminals, without causing activity on them.

Every request has `no_track_activity`, so that polling does not make a notebook look active. A busy
kernel is active now, however old its last output is. A server that does not answer every request is
unknown: the row is a failed poll, without a `notebook_sample` row. It is never idle. Where a
state or time is missing, `busy_kernels` is null: whether the server is active is unknown.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from collectors.http_fetch import OK, fetch, open_session
from collectors.inventory import build_batches, build_scrape_row
from fallow.errors import UNREADABLE_JSON, SettingsError, SourceError
from fallow.settings.collectors import JupyterSettings
from fallow.system.http_client import shorten
from fallow.tables import Batch
from fallow.window import Window

NAME = "jupyter"
CONCURRENCY = 32
"""Servers polled in parallel."""
MAX_BODY = 1 << 20
"""Bytes of one answer: over 4,000 kernels."""

BUSY = {"busy", "starting", "restarting", "autorestarting"}
"""Kernel states that mean work now or soon."""
RESTING = {"idle", "dead"}
"""Kernel states that mean no work; any other state is unknown."""

_NOT_FOUND = 404
Row = dict[str, Any]
Count = Annotated[int, msgspec.Meta(ge=0, le=1_000_000)]
Time = Annotated[datetime, msgspec.Meta(tz=True)]


class Kernel(msgspec.Struct, frozen=True):
    """One kernel as `/api/kernels` lists it."""

    execution_state: str = ""
    last_activity: Time | None = None


class Terminal(msgspec.Struct, frozen=True):
    """One terminal as `/api/terminals` lists it."""

    last_activity: Time | None = None


class JupyterStatus(msgspec.Struct, frozen=True):
    """The answer of `/api/status`."""

    last_activity: Time | None = None
    connections: Count | None = None


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
        gate = asyncio.Semaphore(CONCURRENCY)
        async with open_session() as session:
            return list(
                await asyncio.gather(*(self._poll(session, gate, s) for s in self._servers))
            )

    async def _poll(
        self, session: aiohttp.ClientSession, gate: asyncio.Semaphore, server: NotebookServer
    ) -> tuple[Row | None, Row]:
        async with gate:
            start, row, error = self._clock(), None, None
            within_s = self._settings.timeout.total_seconds()
            try:
                async with asyncio.timeout(within_s):
                    row = await self._read(session, server, start)
            except SourceError as failure:
                error = failure.message
            except TimeoutError:
                error = f"no answer within {within_s:g} s"
            except OverflowError:
                error = "not Jupyter's answer: a time is outside the calendar"
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

    async def _read(
        self, session: aiohttp.ClientSession, server: NotebookServer, start: datetime
    ) -> Row:
        get = partial(_get, session, server, self._authorize(server))
        kernels = await get("kernels", list[Kernel])
        status = await get("status", JupyterStatus)
        # A server without the API has no information about terminals: null.
        terminals = await get("terminals", list[Terminal], optional=True)
        return self._build_row(server, start, kernels, terminals, status)

    def _authorize(self, server: NotebookServer) -> dict[str, str]:
        """Return the header with the token; a server whose URL has a password gets that alone."""
        token = self._settings.token.get_secret_value()
        if not token or urlsplit(server.url).username is not None:
            return {}
        return {"Authorization": f"token {token}"}

    def _build_row(
        self,
        server: NotebookServer,
        ts: datetime,
        kernels: list[Kernel],
        terminals: list[Terminal] | None,
        status: JupyterStatus,
    ) -> Row:
        busy = sum(kernel.execution_state in BUSY for kernel in kernels)
        parts: list[Kernel | Terminal | JupyterStatus] = [status, *kernels, *(terminals or [])]
        is_complete = all(k.execution_state in RESTING for k in kernels) and all(
            part.last_activity is not None for part in parts
        )
        return {
            "cluster": self._cluster,
            "ts": ts,
            "namespace": server.namespace,
            "pod": server.pod,
            "kernels": len(kernels),
            "busy_kernels": busy if busy or is_complete else None,
            "last_kernel_activity": ts if busy else _find_latest(kernels),
            "terminals": None if terminals is None else len(terminals),
            "last_terminal_activity": _find_latest(terminals or []),
            "connections": status.connections,
            "last_activity": ts if busy else _find_latest([status]),
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


def _find_latest(items: list[Kernel] | list[Terminal] | list[JupyterStatus]) -> datetime | None:
    return max((i.last_activity.astimezone(UTC) for i in items if i.last_activity), default=None)


async def _get(
    session: aiohttp.ClientSession,
    server: NotebookServer,
    headers: Mapping[str, str],
    path_name: str,
    shape: type[Any],
    *,
    optional: bool = False,
) -> Any:
    url = URL(f"{server.url}/api/{path_name}").with_query(no_track_activity="1")
    answer = await fetch(session, url, headers, limit=MAX_BODY)
    if optional and answer.status == _NOT_FOUND:
        return None
    if answer.status not in {0, OK}:
        raise SourceError(
            f"HTTP {answer.status} from /api/{path_name}{_explain_failure(answer.status)}"
        )
    if answer.error is not None:
        raise SourceError(f"no answer from /api/{path_name}: {answer.error}")
    try:
        return msgspec.json.decode(answer.body, type=shape)
    except UNREADABLE_JSON as error:
        text = shorten(f"/api/{path_name} is not Jupyter's answer: {error}")
        raise SourceError(text) from error


def _explain_failure(status: int) -> str:
    return {
        301: ": the server lies behind a login",
        302: ": the server lies behind a login",
        401: ": jupyter.token is missing or wrong",
        403: ": jupyter.token is missing or wrong",
    }.get(status, "")
