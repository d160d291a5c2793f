"""Processes beside the test's own: readers that must never notice what writers go through."""

import json
import os
import subprocess
import sys
import time
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
question, stop, progress = sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4])
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
        with progress.open("ab") as file:
            file.write(b".")
        if seen["queries"] == 1:
            print("reading", flush=True)
        if stop.exists():
            break
print(json.dumps(seen, default=str))
"""


class Readers(list[dict[str, Any]]):
    """What each reader saw, filled after the block; inside it, their progress."""

    def __init__(self, progress: list[Path]) -> None:
        """Keep the files that grow by one byte with each query of a reader."""
        super().__init__()
        self._progress = progress

    def wait_for_queries(self, queries: int = 2, timeout: float = 60) -> None:
        """Return when every reader has answered so many more: one of two began after this call.

        Raises:
            TimeoutError: A reader did not answer in time.
        """
        goals = [(file, file.stat().st_size + queries) for file in self._progress]
        end = time.monotonic() + timeout
        while any(file.stat().st_size < goal for file, goal in goals):
            if time.monotonic() > end:
                raise TimeoutError("a reader beside the test answers no more queries")
            time.sleep(0.01)


Reading = Callable[..., AbstractContextManager[Readers]]


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
    def read(settings: Settings, question: str, readers: int = 1) -> Iterator[Readers]:
        stop = tmp_path / "stop"
        # Secrets are written as stars; the tests' warehouses have none.
        progress = [tmp_path / f"progress-{number}" for number in range(readers)]
        running = [
            start(_READER, settings.model_dump_json(), question, stop, file) for file in progress
        ]
        seen = Readers(progress)
        try:
            for reader in running:
                assert reader.stdout is not None
                assert reader.stdout.readline() == "reading\n"
            yield seen
            stop.touch()
            for reader in running:
                seen.append(json.loads(reader.communicate(timeout=60)[0]))
        finally:
            for reader in running:
                reader.kill()
                reader.communicate()
            stop.unlink(missing_ok=True)

    return read
