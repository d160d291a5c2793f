"""Serve a fleet's expositions on one loopback port: python -m benchmarks.exporter_server NODES.

Prints its port and serves `/node/<i>`; each request of a node gets the node's next scrape. As lean
as it can be, since it shares the machine with what is measured.
"""

import asyncio
import sys

from benchmarks.exposition_text import render_node

SCRAPES = 3


class _Exporter(asyncio.Protocol):
    def __init__(self, answers: list[list[bytes]]) -> None:
        self._answers = answers
        self._transport: asyncio.Transport | None = None
        self._request = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._request += data
        if b"\r\n\r\n" not in self._request or self._transport is None:
            return
        path = self._request.split(b" ", 2)[1]
        expositions = self._answers[int(path.rpartition(b"/")[2])]
        body = expositions[0]
        expositions.append(expositions.pop(0))
        head = (
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\n"
            b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        self._transport.write(head + body)
        self._transport.close()


async def serve(nodes: int) -> None:
    """Serve until the parent goes away."""
    answers = [[render_node(node, number) for number in range(SCRAPES)] for node in range(nodes)]
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Exporter(answers), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
