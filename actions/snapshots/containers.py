"""Run a command in a container through the API (`pods/exec`) and stream its input and output."""

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import msgspec

from fallow.errors import FallowError, RefusedError, TemporaryError

PIECE = 32 * 1024
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
        self, place: ContainerRef, command: Sequence[str], stdin: Iterable[bytes] | None = None
    ) -> Iterator[bytes]:
        """Yield a command's output as it arrives."""
        ...


class KubernetesRunner:
    """Runs commands through the official client's WebSocket."""

    def __init__(self, client: Any, *, timeout_s: float = 60.0) -> None:
        self._client, self._timeout_s = client, timeout_s

    def run(
        self, container: ContainerRef, command: Sequence[str], stdin: Iterable[bytes] | None = None
    ) -> Iterator[bytes]:
        """Yield a command's output as it arrives.

        Raises:
            CommandError: the command ended with another exit code than 0.
            RefusedError: the API denies it.
            TemporaryError: no connection, no data for `timeout_s`, or the stream ended early.
        """
        stream = self._open(container, command, stdin is not None)
        try:
            if stdin is not None:
                self._feed(stream, stdin)
            errors = yield from self._read(stream, container)
            code = _get_exit_code(stream.read_channel(_ERROR_CHANNEL))
        finally:
            stream.sock.shutdown()  # close() would wait for the other side's close frame
        if code is None:
            raise TemporaryError(f"the stream from {container.namespace}/{container.pod} broke off")
        if code:
            raise CommandError(command, code, errors)

    def _open(self, container: ContainerRef, command: Sequence[str], has_stdin: bool) -> Any:
        from kubernetes.stream import ws_client
        from websocket import (  # noqa: PLC0415
            WebSocketBadStatusException,
            WebSocketException,
        )

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
            return untyped.WSClient(configuration, url, headers, capture_all=False, binary=True)
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

    @staticmethod
    def _feed(stream: Any, stdin: Iterable[bytes]) -> None:
        from websocket import WebSocketException  # noqa: PLC0415

        for block in stdin:
            try:
                for at in range(0, len(block), PIECE):
                    stream.write_channel(_STDIN, block[at : at + PIECE])
                stream.update(timeout=0)
            except (OSError, WebSocketException):
                return  # what the command said, and its exit code, are read next
        if stream.subprotocol == _V5:
            stream.close_channel(_STDIN)

    def _read(self, stream: Any, container: ContainerRef) -> Generator[bytes, None, str]:
        """Yield output; return the end of the command's error output."""
        from websocket import WebSocketException  # noqa: PLC0415

        errors: bytes = b""
        while True:
            output: bytes = b""
            error_output: bytes = b""
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


def _get_exit_code(status: bytes) -> int | None:
    """Return the exit code of a status, None = there is no status."""
    if not status:
        return None
    status_document = msgspec.json.decode(status)
    if status_document.get("status") == "Success":
        return 0
    causes = (status_document.get("details") or {}).get("causes") or [{}]
    text = str(causes[0].get("message", ""))
    return int(text) if text.isdigit() else 1


def _get_message(body: str) -> str:
    try:
        return str(msgspec.json.decode(body).get("message", body))[:_MAX_MESSAGE]
    except (msgspec.DecodeError, AttributeError):
        return body[:_MAX_MESSAGE] or "no reason given"
