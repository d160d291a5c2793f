"""Run a command in a container through the API (`pods/exec`) and stream its input and output.

What runs there is its user's: it may say anything, without end, or a byte a minute.
"""

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from fallow.errors import UNREADABLE_JSON, FallowError, RefusedError, TemporaryError
from fallow.system.deadlines import call_within

PIECE = 32 * 1024
MOST_OUTPUT = 4 << 20
"""Bytes that a command may say where its caller names no other number."""
COMMAND_S, LEAST_RATE = 300.0, 1 << 20
"""Seconds that a command may take, and bytes that give it a further second."""
_LONGEST_MESSAGE, _LONGEST_CODE = 16 << 20, 3
_ERROR_CHANNEL, _STDIN = 3, 0
_V5 = "v5.channel.k8s.io"
_MAX_MESSAGE = 300


class ContainerRef(msgspec.Struct, frozen=True):
    """A container of a pod."""

    namespace: str
    pod: str
    container: str


class CommandError(FallowError):
    """Report a command that ended with an exit code other than 0."""

    def __init__(self, command: Sequence[str], code: int, message: str) -> None:
        super().__init__(
            f"{command[0]} ended with {code}: {' '.join(message.split())[:_MAX_MESSAGE]}"
        )
        self.code = code


class CommandRunner(Protocol):
    """Runs commands in a container."""

    def run(
        self,
        container: ContainerRef,
        command: Sequence[str],
        stdin: Iterable[bytes] | None = None,
        *,
        most_bytes: int = MOST_OUTPUT,
    ) -> Iterator[bytes]:
        """Yield a command's output as it arrives."""
        ...


class _Traffic:
    """The bytes of one command's connection, held to a number and to a rate."""

    def __init__(self, command: str, most_bytes: int, ticks: Callable[[], float]) -> None:
        self._command, self._most, self._ticks = command, most_bytes, ticks
        self._began = ticks()
        self.sent = self.received = self.message = 0

    def check(self) -> None:
        """Refuse more bytes, or more time, than the command may take."""
        if self.received > self._most or self.message > _LONGEST_MESSAGE:
            raise FallowError(f"{self._command} says more than {self._most:,} bytes")
        limit_s = COMMAND_S + (self.received + self.sent) / LEAST_RATE
        if self._ticks() - self._began > limit_s:
            raise TemporaryError(f"{self._command} did not end within {limit_s:,.0f} s")

    def watch(self, receive: Callable[[int], bytes]) -> Callable[[int], bytes]:
        """Return a function that receives and counts."""

        def receive_counted(most: int) -> bytes:
            self.check()
            piece = receive(most)
            self.received += len(piece)
            self.message += len(piece)
            return piece

        return receive_counted


class KubernetesRunner:
    """Runs commands through the official client's WebSocket."""

    def __init__(
        self, client: Any, *, timeout_s: float = 60.0, ticks: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._timeout_s, self._ticks = client, timeout_s, ticks

    def run(
        self,
        container: ContainerRef,
        command: Sequence[str],
        stdin: Iterable[bytes] | None = None,
        *,
        most_bytes: int = MOST_OUTPUT,
    ) -> Iterator[bytes]:
        """Yield a command's output as it arrives.

        Raises:
            CommandError: the command ended with another exit code than 0.
            RefusedError: the API denies it.
            TemporaryError: no connection, no data for `timeout_s`, the stream ended early, or the
                command takes longer than `COMMAND_S` and its bytes allow.
            FallowError: it says more than `most_bytes`.
        """
        traffic = _Traffic(command[0], most_bytes, self._ticks)
        stream = self._open(container, command, stdin is not None, traffic)
        try:
            if stdin is not None:
                self._feed(stream, stdin, traffic)
            errors = yield from self._read(stream, container, traffic)
            code = _get_exit_code(stream.read_channel(_ERROR_CHANNEL))
        finally:
            stream.sock.shutdown()  # close() would wait for the other side's close frame
        if code is None:
            raise TemporaryError(f"the stream from {container.namespace}/{container.pod} broke off")
        if code:
            raise CommandError(command, code, errors)

    def _open(
        self, container: ContainerRef, command: Sequence[str], has_stdin: bool, traffic: _Traffic
    ) -> Any:
        from kubernetes.stream import ws_client
        from websocket import WebSocketBadStatusException, WebSocketException  # noqa: PLC0415

        path = f"/api/v1/namespaces/{quote(container.namespace)}/pods/{quote(container.pod)}/exec"
        query = [("command", argument) for argument in command]
        query += [("container", container.container), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if has_stdin else []
        configuration = self._client.configuration
        bearer = configuration.auth_settings().get("BearerToken")
        headers = {"authorization": bearer["value"]} if bearer else {}
        untyped: Any = ws_client
        url = untyped.get_websocket_url(configuration.host + path) + "?" + urlencode(query)
        try:
            stream: Any = call_within(
                self._timeout_s,
                lambda: untyped.WSClient(
                    configuration, url, headers, capture_all=False, binary=True
                ),
            )
        except WebSocketBadStatusException as error:
            text = bytes(error.resp_body or b"").decode("utf-8", "replace")
            why = f"exec in {container.namespace}/{container.pod}: {_get_message(text)}"
            if error.status_code in {400, 401, 403, 404}:
                raise RefusedError(why) from error
            raise TemporaryError(why) from error
        except (OSError, WebSocketException) as error:
            raise TemporaryError(
                f"exec in {container.namespace}/{container.pod}: {error}"
            ) from error
        stream.sock.settimeout(self._timeout_s)
        stream.sock.frame_buffer.recv = traffic.watch(stream.sock.frame_buffer.recv)
        # One message at a time: the client reads on while there are any.
        stream._frames_immediately_available = lambda: False  # noqa: SLF001  (it has no setting)
        return stream

    @staticmethod
    def _feed(stream: Any, stdin: Iterable[bytes], traffic: _Traffic) -> None:
        from websocket import WebSocketException  # noqa: PLC0415

        for block in stdin:
            try:
                for at in range(0, len(block), PIECE):
                    traffic.check()
                    traffic.sent += PIECE
                    stream.write_channel(_STDIN, block[at : at + PIECE])
                stream.update(timeout=0)
            except (OSError, WebSocketException):
                return  # what the command said, and its exit code, are read next
        if stream.subprotocol == _V5:
            stream.close_channel(_STDIN)

    def _read(
        self, stream: Any, container: ContainerRef, traffic: _Traffic
    ) -> Generator[bytes, None, str]:
        """Yield output; return the end of the command's error output."""
        from websocket import WebSocketException  # noqa: PLC0415

        errors: bytes = b""
        while True:
            output: bytes = b""
            error_output: bytes = b""
            traffic.message = 0
            try:
                # Each of them reads the connection.
                stream.update(timeout=self._timeout_s)
                output = stream.read_stdout(timeout=0)
                error_output = stream.read_stderr(timeout=0)
            except (OSError, WebSocketException):
                if output:
                    yield output
                return errors.decode("utf-8", "replace")  # the exit code, if any, comes later
            errors = (errors + error_output)[-_MAX_MESSAGE:]
            if output:
                yield output
            elif not stream.is_open() or stream.peek_channel(_ERROR_CHANNEL):  # end of stderr
                return errors.decode("utf-8", "replace")
            elif not error_output:
                raise TemporaryError(
                    f"{container.namespace}/{container.pod} said nothing for {self._timeout_s:g} s"
                )


class _Cause(msgspec.Struct):
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] = []


class _Status(msgspec.Struct):
    status: str = ""
    details: _Details | None = None


def _get_exit_code(status: bytes) -> int | None:
    """Return the exit code of a status, None = there is no status."""
    try:
        document = msgspec.json.decode(status, type=_Status)
    except UNREADABLE_JSON:
        return None
    if document.status == "Success":
        return 0
    causes = document.details.causes if document.details else []
    text = causes[0].message if causes else ""
    return int(text) if text.isdecimal() and len(text) <= _LONGEST_CODE else 1


def _get_message(body: str) -> str:
    try:
        return str(msgspec.json.decode(body).get("message", body))[:_MAX_MESSAGE]
    except (*UNREADABLE_JSON, AttributeError):
        return body[:_MAX_MESSAGE] or "no reason given"
