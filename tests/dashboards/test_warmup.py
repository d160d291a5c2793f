"""The start of the pages reads what every page shows, and leaves the audits to the first page."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from dashboards import active_settings, data, warmup
from dashboards.figures import data_health, extent
from tests.dashboards.drawing import Draw
from tests.reports import small
from warehouse import audits


def start() -> None:
    """Start and stop the app, and wait until its thread that reads in advance has ended."""

    async def serve() -> None:
        async with warmup.start_app(None):
            pass

    asyncio.run(serve())
    for thread in threading.enumerate():
        if thread.name == "warm-up":
            thread.join()


def test_the_start_reads_the_extent_and_no_audit_before_a_page_is_opened(
    tmp_path: Path, draw: Draw, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def watch(module: Any, name: str) -> None:
        called = getattr(module, name)

        def spy(*args: Any, **options: Any) -> Any:
            read.append(name)
            return called(*args, **options)

        spy.__module__, spy.__qualname__ = called.__module__, called.__qualname__
        monkeypatch.setattr(module, name, spy)

    watch(extent, "read_extent")
    watch(data_health, "read_failures")
    watch(audits, "run_audit")
    watch(audits, "run_audits")
    settings = small.fill(tmp_path / "home", small.rows())
    active_settings.use_settings(settings)
    data.forget()
    start()
    assert read == ["read_extent"]
    draw("spend", settings, window="3d")
    assert {"read_failures", "run_audits"} & {*read[1:]}, "a page reads them"
