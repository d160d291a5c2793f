"""Run commands in containers (`pods/exec`) over a WebSocket, channel protocol v4 and v5.

A container is a folder of this machine and a table of answers. `tar` really runs inside the folder;
any other command returns its answer from the table, or is not found.

    server.containers.add("lab", "nb-0", Machine(folder, home="/home/jovyan"))
"""

import base64
import hashlib
import json
import socket
import subprocess
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.kube.status import StatusError, build_bad_request, build_not_found
from simulator.kube.store import ObjectStore

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255
PIECE = 32 * 1024
NO_COMMAND = 127
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3


@dataclass
class Machine:
    """What runs in a container: its files are `root`, its answers `says` (output, exit code)."""

    root: Path
    home: str = "/home/jovyan"
    says: dict[tuple[str, ...], tuple[bytes, int]] = field(default_factory=dict)
    cut_after: int | None = None
    """Break the connection after so many bytes of output."""

    def answer(self, command: Sequence[str]) -> tuple[bytes, int] | None:
        """Return the table's answer to a command; None = it has none."""
        if tuple(command) == ("printenv", "HOME"):
            return f"{self.home}\n".encode(), 0
        return self.says.get(tuple(command))

    def real(self, command: Sequence[str]) -> list[str]:
        """Return a command whose folders are those of `root`."""
        out, after = [], False
        for word in command:
            out.append(str(self.root / word.lstrip("/")) if after else word)
            after = word in {"-C", "--directory"}
        return out


class ExecContainers:
    """The containers in which commands can run; a pod without one responds that there is none."""

    def __init__(self) -> None:
        self._machines: dict[tuple[str, str, str], Machine] = {}
        self.default: Machine | None = None
        """What runs in every other container."""

    def add(self, namespace: str, pod: str, machine: Machine, container: str = "") -> None:
        """Assign a machine to a pod's container; no name = any container."""
        self._machines[namespace, pod, container] = machine

    def find(
        self, store: ObjectStore, namespace: str, pod: str, query: dict[str, list[str]]
    ) -> tuple[Machine, list[str]]:
        """Return the machine and the command that a request asks for.

        Raises:
            ApiError: 404 no such pod, 400 no such container or no command, 500 nothing runs there.
        """
        pod_object: Any = store.get("Pod", pod, namespace)
        if pod_object is None:
            raise build_not_found("", "pods", pod)
        container = (query.get("container") or [""])[0]
        names = [c["name"] for c in pod_object["spec"].get("containers", ())]
        if container and container not in names:
            raise build_bad_request(f"container {container} is not valid for pod {pod}")
        command = query.get("command") or []
        if not command:
            raise build_bad_request("you must specify at least 1 command for the container")
        container_name = container or names[0]
        machine = self._machines.get((namespace, pod, container_name))
        machine = machine or self._machines.get((namespace, pod, "")) or self.default
        if machine is None or pod_object.get("status", {}).get("phase") != "Running":
            message = f'unable to upgrade connection: container not found ("{container_name}")'
            raise StatusError(500, "InternalError", message, {})
        return machine, command


def accept_key(key: str) -> str:
    """Return the answer to a WebSocket's key (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID).digest()).decode()  # noqa: S324


def choose_protocol(offered: str) -> str | None:
    """Return the newest protocol of those offered, None = none of ours."""
    names = {word.strip() for word in offered.split(",")}
    return next((p for p in (V5, V4) if p in names), None)


def _open_reader(reader: Any) -> Callable[[int], bytes]:
    def read(count: int) -> bytes:
        data = bytes(reader.read(count))
        if not data:
            raise ConnectionResetError
        return data

    return read


class ExecSession:
    """One command, its streams multiplexed over an upgraded connection."""

    def __init__(self, reader: Any, connection: Any, protocol: str) -> None:
        from websocket import ABNF  # noqa: PLC0415  (the client's own frames; met only here)
        from websocket._abnf import frame_buffer  # noqa: PLC0415  (it has no public name)

        self._frame = ABNF
        self._buffer: Any = frame_buffer(_open_reader(reader), skip_utf8_validation=True)
        self._connection, self._protocol = connection, protocol
        self._lock = threading.Lock()

    def run(self, machine: Machine, command: Sequence[str]) -> None:
        """Run a command to its end and say its exit code."""
        answer = machine.answer(command)
        if answer is not None:
            self._send(STDOUT, answer[0])
            self._end(answer[1])
        elif command[0] != "tar":
            self._send(STDERR, f"exec: {command[0]}: not found\n".encode())
            self._end(NO_COMMAND)
        else:
            self._spawn(machine, machine.real(command))

    def _spawn(self, machine: Machine, command: list[str]) -> None:
        pipe = subprocess.PIPE
        with subprocess.Popen(  # noqa: S603  (only tar, in the folder a test chose)
            command, stdin=pipe, stdout=pipe, stderr=pipe
        ) as process:
            threading.Thread(target=self._feed, args=(process,), daemon=True).start()
            sent = 0
            assert process.stdout is not None  # noqa: S101  (it is a pipe)
            assert process.stderr is not None  # noqa: S101
            while piece := process.stdout.read(PIECE):
                if machine.cut_after is not None and sent + len(piece) > machine.cut_after:
                    process.kill()
                    self._connection.shutdown(socket.SHUT_RDWR)
                    return
                self._send(STDOUT, piece)
                sent += len(piece)
            if stderr_text := process.stderr.read():
                self._send(STDERR, stderr_text)
            self._end(process.wait())

    def _feed(self, process: "subprocess.Popen[bytes]") -> None:
        """Pass what the client sends to the command, until either ends."""
        stdin = process.stdin
        assert stdin is not None  # noqa: S101  (it is a pipe)
        try:
            while True:
                frame = self._buffer.recv_frame()
                if frame.opcode == self._frame.OPCODE_CLOSE:
                    break
                channel, data = frame.data[0], frame.data[1:]
                if channel == STDIN:
                    stdin.write(data)
                    stdin.flush()
                elif channel == CLOSE and self._protocol == V5 and data[:1] == bytes([STDIN]):
                    break
        except Exception:  # noqa: BLE001, S110  (the client left, or the command has ended)
            pass
        finally:
            try:
                stdin.close()
            except OSError:
                process.kill()

    def _end(self, code: int) -> None:
        status: dict[str, Any] = {"metadata": {}, "status": "Success"}
        if code:
            status = {
                "metadata": {},
                "status": "Failure",
                "message": f"command terminated with non-zero exit code: exit status {code}",
                "reason": "NonZeroExitCode",
                "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
            }
        self._send(ERROR, json.dumps(status).encode())
        self._write(b"\x03\xe8", self._frame.OPCODE_CLOSE)

    def _send(self, channel: int, data: bytes) -> None:
        self._write(bytes([channel]) + data, self._frame.OPCODE_BINARY)

    def _write(self, data: bytes, opcode: int) -> None:
        frame = self._frame.create_frame(data, opcode)
        frame.mask_value = 0  # a server does not mask (RFC 6455 section 5.1)
        with self._lock:
            self._connection.sendall(frame.format())
