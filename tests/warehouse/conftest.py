"""Processes beside the test's own: readers that must never notice what writers go through."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from fallow.settings import Settings

_READER = """
import json, sys
from pathlib import Path
from fallow.settings import Settings
from warehouse.lake import Warehouse

settings = Settings.model_validate_json(sys.argv[1])
question, stop = sys.argv[2], Path(sys.argv[3])
seen = {"queries": 0, "errors": [], "answers": []}
with Warehouse.open(settings) as warehouse:
    while True:
        try:
            answer = warehouse.query(question).to_pylist()
        except Exception as error:
            seen["errors"].append(repr(error))
        else:
            if answer not in seen["answers"]:
                seen["answers"].append(answer)
        seen["queries"] += 1
        if seen["queries"] == 1:
            print("reading", flush=True)
        if stop.exists():
            break
print(json.dumps(seen, default=str))
"""

Reading = Callable[..., AbstractContextManager[list[dict[str, Any]]]]


def start(*command: object) -> subprocess.Popen[str]:
    """Start Python code as a process of its own, its stdout a pipe."""
    return subprocess.Popen(
        [sys.executable, "-c", *map(str, command)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


@pytest.fixture
def process() -> Callable[..., subprocess.Popen[str]]:
    """Return what starts Python code as a process of its own."""
    return start


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    """Return what asks a question again and again in other processes while a block runs.

    The list it gives holds, after the block, what each reader saw: queries, errors and the
    different answers in the order they came.
    """

    @contextmanager
    def read(settings: Settings, question: str, readers: int = 1) -> Iterator[list[dict[str, Any]]]:
        stop = tmp_path / "stop"
        # Secrets are written as stars; the tests' warehouses have none.
        running = [
            start(_READER, settings.model_dump_json(), question, stop) for _ in range(readers)
        ]
        seen: list[dict[str, Any]] = []
        try:
            for reader in running:
                assert reader.stdout is not None
                assert reader.stdout.readline() == "reading\n"
            yield seen
            stop.touch()
            for reader in running:
                seen.append(json.loads(reader.communicate(timeout=60)[0]))  # noqa: PERF401
        finally:
            for reader in running:
                reader.kill()
                reader.communicate()
            stop.unlink(missing_ok=True)

    return read
