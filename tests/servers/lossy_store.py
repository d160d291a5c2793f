"""A proxy in front of an S3-compatible server that loses what it acknowledged, or its answers."""

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class LossyStore:
    """Where the proxy listens, how it fails (`mode`), and what it lost."""

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.url = ""
        self.mode = "honest"
        """honest; forgets: a written Parquet object is acknowledged and gone; mute: the first write
        of each object is done, and its answer is lost."""
        self.objects: list[str] = []

    def send(
        self, method: str, path: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        """Return the upstream's answer."""
        connection = http.client.HTTPConnection(self.upstream, timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            connection.close()


def _is_whole_object(method: str, path: str) -> bool:
    """Return whether a request finishes an object: a PUT, or the end of one in parts."""
    query = urlsplit(path).query
    is_put = method == "PUT" and "partNumber" not in query
    return ".parquet" in path and (is_put or (method == "POST" and "uploadId" in query))


@contextmanager
def serving(upstream: str) -> Iterator[LossyStore]:
    """Run the proxy on a free port until the block ends."""
    store = LossyStore(upstream)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _forward(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length) if length else b""
            headers = {k: v for k, v in self.headers.items() if k.lower() != "expect"}
            status, answer_headers, answer = store.send(self.command, self.path, body, headers)
            name = urlsplit(self.path).path
            if status < http.client.MULTIPLE_CHOICES and _is_whole_object(self.command, self.path):
                if store.mode == "forgets":
                    signed = {"Host": headers["Host"], "Authorization": headers["Authorization"]}
                    removed, _, _ = store.send("DELETE", name, b"", signed)
                    assert removed == http.client.NO_CONTENT
                    store.objects.append(name)
                if store.mode == "mute" and name not in store.objects:
                    store.objects.append(name)
                    self.close_connection = True
                    return
            self.send_response(status)
            for key, value in answer_headers:
                if key.lower() not in {"content-length", "connection", "date", "server"}:
                    self.send_header(key, value)
            declared = dict(answer_headers).get("Content-Length", "0")
            self.send_header(
                "Content-Length", declared if self.command == "HEAD" else str(len(answer))
            )
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _forward  # noqa: N815  (their names)

        def log_message(self, *_args: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        store.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield store
        finally:
            server.shutdown()
