"""Processes under strace: their writes counted, made to fail, recorded and replayed."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
FAILABLE = (
    "write", "pwrite64", "writev", "pwritev", "ftruncate", "fallocate", "fsync", "fdatasync",
    "rename", "renameat", "renameat2", "mkdir", "mkdirat", "link", "linkat",
)  # fmt: skip
FOLLOWED = (
    *FAILABLE, "open", "openat", "creat", "lseek", "truncate", "unlink", "unlinkat", "rmdir",
    "copy_file_range", "sendfile",
)  # fmt: skip
_CALL = re.compile(r"(\d+) +(\w+)\((.*)\) += (-?\d+)(?:<([^>]*)>)?(.*)")
_PART = re.compile(r"(?:\\x[0-9a-f]{2})+")
_DESCRIPTOR = re.compile(r"(\d+)<([^>]*)>")
_TEXT = re.compile(r'"([^"]*)"')


class TracedCall(msgspec.Struct, frozen=True):
    """One system call of a trace, on a path."""

    thread: int
    name: str
    arguments: str
    result: int
    path: str
    """The file of its descriptor or its first argument."""
    injected: bool


class Outcome(msgspec.Struct, frozen=True):
    """How a step's process ended."""

    code: int
    words: str


class StepProcesses:
    """The parent of the processes of steps."""

    def __init__(self, parent: subprocess.Popen[str]) -> None:
        self._parent = parent

    def run(self, step: str, home: Path) -> Outcome:
        """Do a step on a home, unwatched."""
        self._begin(step, home)
        return self._end()

    def trace(
        self, step: str, home: Path, *options: str, names: Iterable[str] = FOLLOWED, bytes_: int = 0
    ) -> tuple[Outcome, list[TracedCall]]:
        """Do a step on a home under strace; return its calls too."""
        output = home.with_name("trace")
        pid = self._begin(step, home)
        command: list[str | Path] = [
            "strace",
            "-f",
            "-y",
            "-xx",
            "-s",
            f"{bytes_}",
            "-o",
            output,
            "-p",
        ]
        listed = ",".join(f"?{name}" for name in names)
        with subprocess.Popen(
            [*command, str(pid), "-e", f"trace={listed}", *options],
            stderr=subprocess.PIPE,
            text=True,
        ) as strace:
            assert strace.stderr is not None
            line = strace.stderr.readline()
            outcome = self._end()
            rest = strace.communicate(timeout=60)[1]
        if "not permitted" in line:
            pytest.skip(f"strace may not trace here (Debian: kernel.yama.ptrace_scope): {line}")
        assert "attached" in line, line + rest
        return outcome, list(parse(output.read_text(encoding="ascii")))

    def _begin(self, step: str, home: Path) -> int:
        return int(self._ask(json.dumps([step, str(home)])))

    def _end(self) -> Outcome:
        return Outcome(*json.loads(self._ask("go")))

    def _ask(self, line: str) -> str:
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(f"{line}\n")
        self._parent.stdin.flush()
        return self._parent.stdout.readline()


@contextmanager
def start_processes() -> Iterator[StepProcesses]:
    """Start the parent of the steps' processes; skip without strace."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed (Debian: apt-get install strace)")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "FALLOW_WAREHOUSE__THREADS": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "tests.warehouse.write_steps"],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        try:
            yield StepProcesses(parent)
        finally:
            parent.kill()


def parse(text: str) -> Iterator[TracedCall]:
    """Yield the calls of a trace in the order in which they ended."""
    begun: dict[str, str] = {}
    for line in text.splitlines():
        thread, _, rest = line.partition(" ")
        rest = rest.lstrip()
        if rest.endswith("<unfinished ...>"):
            begun[thread] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        if rest.startswith("<..."):
            rest = begun.pop(thread) + rest.partition("resumed>")[2]
        call = _CALL.match(f"{thread} {rest}")
        if call is None:
            continue
        _, name, arguments, result, opened, end = call.groups()
        descriptor, texts = _DESCRIPTOR.match(arguments), _TEXT.search(arguments)
        path = opened or (descriptor[2] if descriptor else texts[1] if texts else "")
        yield TracedCall(
            int(thread), name, arguments, int(result), os.fsdecode(decode(path)), "INJECTED" in end
        )


def decode(text: str) -> bytes:
    """Return the bytes of a string that strace wrote in hexadecimal."""
    return b"".join(bytes.fromhex(part.replace("\\x", "")) for part in _PART.findall(text))


class FileChange(msgspec.Struct, frozen=True):
    """One change of a folder's files."""

    kind: str
    """create, resize, write, sync, rename, link, remove, mkdir or acknowledge."""
    path: str
    at: int = 0
    data: bytes = b""
    target: str = ""


def list_changes(calls: Iterable[TracedCall], home: Path, acknowledged: str) -> list[FileChange]:
    """Return what the calls changed below a home, in order.

    Raises:
        AssertionError: a call changes files in a way that is not replayed.
    """
    positions: dict[int, int] = {}
    changes: list[FileChange] = []
    for call in calls:
        if call.name == "writev" and call.path == str(home.with_name(acknowledged)):
            changes.append(FileChange("acknowledge", call.path))
        if not call.path.startswith(f"{home}") or call.path == str(home.with_name(acknowledged)):
            continue
        if call.result >= 0:
            changes += _list_changes(call, positions)
    return changes


def _list_changes(call: TracedCall, positions: dict[int, int]) -> Iterator[FileChange]:
    texts = [decode(text) for text in _TEXT.findall(call.arguments)]
    number = call.arguments.partition("<")[0]
    descriptor = int(number) if number.isdecimal() else -1
    last = call.arguments.rpartition(", ")[2]
    match call.name:
        case "open" | "openat":
            positions[call.result] = 0
            kinds = {"O_CREAT": "create", "O_TRUNC": "resize"}
            yield from (
                FileChange(kind, call.path)
                for flag, kind in kinds.items()
                if flag in call.arguments
            )
        case "lseek":
            positions[descriptor] = call.result
        case "write":
            start = positions[descriptor]
            positions[descriptor] += call.result
            yield FileChange("write", call.path, start, texts[0][: call.result])
        case "pwrite64":
            yield FileChange("write", call.path, int(last), texts[0][: call.result])
        case "ftruncate":
            yield FileChange("resize", call.path, int(last))
        case "fsync" | "fdatasync":
            yield FileChange("sync", call.path)
        case "rename" | "link" as kind:
            yield FileChange(kind, call.path, target=os.fsdecode(texts[1]))
        case "unlink" | "rmdir":
            yield FileChange("remove", call.path)
        case "mkdir":
            yield FileChange("mkdir", call.path)
        case _:
            raise AssertionError(f"{call.name} is not replayed: {call.arguments[:200]}")


class FileImage:
    """The files of a folder, as the system has them, and as the disk has them."""

    def __init__(self, home: Path) -> None:
        self.home = str(home)
        paths = list(home.rglob("*")) if home.exists() else []
        self.folders = {str(path) for path in paths if path.is_dir()}
        self.folders |= {self.home} if home.exists() else set()
        self.files = {str(p): bytearray(p.read_bytes()) for p in paths if p.is_file()}
        self.synced = {path: bytes(data) for path, data in self.files.items()}

    def apply(self, change: FileChange, share: float = 1.0) -> None:
        """Apply a change, or the first share of a write's bytes."""
        path = change.path
        match change.kind:
            case "create":
                self.files.setdefault(path, bytearray())
            case "rename" | "link":
                for images in (self.files, self.synced):
                    if path in images:
                        images[change.target] = images[path]  # type: ignore[assignment]
                    if change.kind == "rename":
                        images.pop(path, None)
            case "remove":
                self.folders.discard(path)
                self.files.pop(path, None)
                self.synced.pop(path, None)
            case "mkdir":
                self.folders.add(path)
            case _ if path in self.files:  # others: a folder is synced, the step is acknowledged
                self._change_bytes(change, self.files[path], share)

    def _change_bytes(self, change: FileChange, data: bytearray, share: float) -> None:
        if change.kind == "sync":
            self.synced[change.path] = bytes(data)
            return
        data.extend(bytes(max(0, change.at - len(data))))
        if change.kind == "resize":
            del data[change.at :]
        else:
            new = change.data[: round(len(change.data) * share)]
            data[change.at : change.at + len(new)] = new

    def write(self, *, only_synced: bool = False) -> None:
        """Replace the folder by this image, without the memory that SQLite maps (-shm)."""
        shutil.rmtree(self.home, ignore_errors=True)
        for folder in sorted(self.folders):
            Path(folder).mkdir(parents=True)
        for path, data in self.files.items():
            if not path.endswith("-shm"):
                Path(path).write_bytes(self.synced.get(path, b"") if only_synced else bytes(data))


def spread(count: int, most: int) -> list[int]:
    """Return at most so many of the numbers below `count`, evenly, with the first and the last."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})
