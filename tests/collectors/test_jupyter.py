"""Jupyter: busy wins over age, our asking is no activity, silence is unknown and never idle."""

import asyncio
import base64
import threading
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from collectors.jupyter import JupyterCollector
from fallow.errors import SettingsError
from fallow.settings.collectors import JupyterSettings
from fallow.window import Window

OLD = "2026-11-19T01:00:00.000000Z"
NEW = "2026-11-20T11:00:00.000000Z"


class Notebook:
    """A notebook server on a free port."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {
            "kernels": [],
            "terminals": [],
            "status": {"started": OLD, "last_activity": OLD, "kernels": 0, "connections": 0},
        }
        self.codes: dict[str, int] = {}
        self.slow: set[str] = set()
        self.asked: list[tuple[str, str, str]] = []
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._runner: web.AppRunner | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._ready.wait(10)

    @property
    def server(self) -> str:
        return f"ml/ada-0=http://127.0.0.1:{self.port}/user/ada/"

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._start())
        self._loop.run_forever()
        self._loop.run_until_complete(self._end())
        self._loop.close()

    async def _end(self) -> None:
        """Shut the server, and leave no answer pending: it would complain in another test."""
        assert self._runner is not None
        await self._runner.cleanup()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _start(self) -> None:
        app = web.Application()
        app.router.add_get("/user/ada/api/{what}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.port = self._runner.addresses[0][1]
        self._ready.set()

    async def _answer(self, request: web.Request) -> web.Response:
        what = request.match_info["what"]
        token = request.headers.get("Authorization", "")
        self.asked.append((what, request.query.get("no_track_activity", ""), token))
        if what in self.slow:
            await asyncio.sleep(1)
        if what in self.codes:
            return web.Response(status=self.codes[what], headers={"Location": "/login"})
        return web.json_response(self.answers[what])


@pytest.fixture
def notebook() -> Iterator[Notebook]:
    server = Notebook()
    yield server
    server.close()


def look(now: datetime, *servers: str) -> dict[str, list[dict[str, Any]]]:
    settings = JupyterSettings(
        servers=list(servers), token=SecretStr("s3cret"), timeout=timedelta(seconds=0.4)
    )
    rows: dict[str, list[dict[str, Any]]] = {"notebook_sample": [], "scrape": []}
    collector = JupyterCollector(settings, "c", lambda: now)
    for batch in collector.collect(Window.last(timedelta(minutes=1), now=now)):
        rows[batch.table] += batch.rows.to_pylist()
    return rows


def kernel(state: str, at: str) -> dict[str, Any]:
    return {"id": "1", "name": "python3", "execution_state": state, "last_activity": at}


def test_kernels_terminals_and_status_become_one_row(notebook: Notebook, now: datetime) -> None:
    notebook.answers["kernels"] = [kernel("idle", OLD), kernel("idle", NEW)]
    notebook.answers["terminals"] = [{"name": "1", "last_activity": OLD}]
    notebook.answers["status"]["connections"] = 2
    rows = look(now, notebook.server)
    (row,) = rows["notebook_sample"]
    assert (row["namespace"], row["pod"]) == ("ml", "ada-0")
    assert (row["kernels"], row["busy_kernels"], row["terminals"]) == (2, 0, 1)
    assert row["last_kernel_activity"].isoformat() == "2026-11-20T11:00:00"
    assert row["last_terminal_activity"].isoformat() == "2026-11-19T01:00:00"
    assert row["connections"] == 2
    assert [r["up"] for r in rows["scrape"]] == [True]


def test_asking_is_never_activity_and_carries_the_token(notebook: Notebook, now: datetime) -> None:
    look(now, notebook.server)
    assert {what for what, _, _ in notebook.asked} == {"kernels", "terminals", "status"}
    assert {(flag, token) for _, flag, token in notebook.asked} == {("1", "token s3cret")}


def test_a_password_in_one_url_takes_the_place_of_the_token_there_alone(
    notebook: Notebook, now: datetime
) -> None:
    with_password = notebook.server.replace("http://", "http://ada:pass@").replace("-0", "-1")
    rows = look(now, notebook.server, with_password)
    assert [row["up"] for row in rows["scrape"]] == [True, True]
    basic = f"Basic {base64.b64encode(b'ada:pass').decode()}"
    assert {token for _, _, token in notebook.asked} == {"token s3cret", basic}


@pytest.mark.parametrize("state", ["busy", "starting", "restarting"])
def test_a_busy_kernel_is_active_now_however_old_its_output(
    notebook: Notebook, now: datetime, state: str
) -> None:
    notebook.answers["kernels"] = [kernel(state, OLD), kernel("idle", OLD)]
    (row,) = look(now, notebook.server)["notebook_sample"]
    assert row["busy_kernels"] == 1
    assert row["last_kernel_activity"] == now.replace(tzinfo=None)
    assert row["last_activity"] == now.replace(tzinfo=None)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("terminals", [{"name": "1"}]),
        ("terminals", [{"name": "1", "last_activity": OLD}, {"name": "2"}]),
        ("kernels", [{"id": "1", "name": "python3"}]),
        ("kernels", [kernel("idle", OLD), {"id": "2", "execution_state": "idle"}]),
        ("kernels", [{"id": "1", "last_activity": OLD}]),
        ("kernels", [kernel("unknown", OLD)]),
        ("kernels", [kernel("hibernating", OLD), kernel("idle", OLD)]),
        ("status", {"started": OLD, "last_activity": None}),
        ("status", {"started": OLD}),
    ],
)
def test_a_state_or_time_that_is_missing_makes_activity_unknown(
    notebook: Notebook, now: datetime, path: str, answer: Any
) -> None:
    notebook.answers[path] = answer
    (row,) = look(now, notebook.server)["notebook_sample"]
    assert row["busy_kernels"] is None
    if path != "kernels":
        notebook.answers["kernels"] = [kernel("busy", OLD)]
        (row,) = look(now, notebook.server)["notebook_sample"]
        assert row["busy_kernels"] == 1, "busy is known"


@pytest.mark.parametrize("state", ["idle", "dead"])
def test_a_kernel_that_is_idle_or_dead_is_not_busy(
    notebook: Notebook, now: datetime, state: str
) -> None:
    notebook.answers["kernels"] = [kernel(state, OLD)]
    (row,) = look(now, notebook.server)["notebook_sample"]
    assert row["busy_kernels"] == 0


def test_no_kernels_is_zero_and_no_terminal_api_is_unknown(
    notebook: Notebook, now: datetime
) -> None:
    notebook.codes["terminals"] = 404
    (row,) = look(now, notebook.server)["notebook_sample"]
    assert (row["kernels"], row["busy_kernels"], row["last_kernel_activity"]) == (0, 0, None)
    assert row["terminals"] is None


@pytest.mark.parametrize("what", ["kernels", "terminals", "status"])
@pytest.mark.parametrize(
    ("code", "message"),
    [(403, "jupyter.token is missing or wrong"), (302, "behind a login"), (500, "HTTP 500")],
)
def test_a_refusal_is_unknown_and_never_idle(
    notebook: Notebook, now: datetime, what: str, code: int, message: str
) -> None:
    notebook.codes[what] = code
    rows = look(now, notebook.server)
    assert rows["notebook_sample"] == []
    (scrape,) = rows["scrape"]
    assert not scrape["up"]
    assert message in scrape["error"]


def test_a_slow_or_absent_server_is_unknown_and_others_are_asked(
    notebook: Notebook, now: datetime
) -> None:
    absent = "ml/bob-0=http://127.0.0.1:1/"
    rows = look(now, notebook.server, absent)
    assert [r["pod"] for r in rows["notebook_sample"]] == ["ada-0"]
    assert sorted(r["up"] for r in rows["scrape"]) == [False, True]
    notebook.slow.add("kernels")
    rows = look(now, notebook.server)
    assert rows["notebook_sample"] == []
    assert rows["scrape"][0]["error"] == "no answer within 0.4 s"


def test_an_answer_that_is_not_jupyters_is_unknown(notebook: Notebook, now: datetime) -> None:
    notebook.answers["kernels"] = {"message": "hello"}
    rows = look(now, notebook.server)
    assert rows["notebook_sample"] == []
    assert "/api/kernels is not Jupyter's answer" in rows["scrape"][0]["error"]


@pytest.mark.parametrize("text", ["", "ml/p", "p=http://h/", "ml/p=ftp://h/", "ml/=http://h/"])
def test_servers_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="is not namespace/pod=http"):
        JupyterCollector(JupyterSettings(servers=[text]), "c")
