"""Parse a fleet's expositions, against the reference parser and one pass over the bytes."""

import time
from collections.abc import Callable

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from benchmarks.exposition_text import FIELDS, GPUS, render_node
from benchmarks.result import Result
from collectors.reader import Reader

TIMESTAMP = np.datetime64("2026-11-20T12:00:00", "us")
NODES, SMALL_NODES = 1250, 50
ROUNDS = 7


def run(small: bool) -> list[Result]:
    """Measure CPU seconds of one thread, best of several rounds."""
    nodes = SMALL_NODES if small else NODES
    first = [render_node(node, 0) for node in range(nodes)]
    later = [render_node(node, 1) for node in range(nodes)]
    samples = nodes * GPUS * len(FIELDS)
    size = sum(map(len, later))
    reader = Reader()
    began = time.process_time()
    _check_whole(reader, first)
    learned = time.process_time() - began
    parsed, laid = float("inf"), float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        _feed(reader, later)
        reader.settle()
        parsed = min(parsed, time.process_time() - began)
        _finish(reader)
        laid = min(laid, time.process_time() - began)
    some = [body.decode() for body in later[: max(2, nodes // 25)]]
    peer = _find_best(lambda: [list(text_string_to_metric_families(text)) for text in some], 3)
    peer_rate = len(some) * GPUS * len(FIELDS) / peer
    limit = _find_best(lambda: [body.count(b"\n") for body in later], ROUNDS)
    note = f"{samples} samples, {size / 1e6:.0f} MB, {nodes} targets"
    return [
        Result(
            name="parse expositions to values of known series",
            value=samples / parsed / 1e6,
            unit="M samples/s",
            reach=3.0,
            at_most=False,
            peer="prometheus_client.parser",
            peer_value=peer_rate / 1e6,
            ratio=samples / parsed / peer_rate,
            reach_ratio=120,
            note=f"{note}; CPU of one thread, best of {ROUNDS}",
        ),
        Result(
            name="parse and lay out wide rows",
            value=samples / laid / 1e6,
            unit="M samples/s",
            ratio=samples / laid / peer_rate,
            peer="prometheus_client.parser",
            note="until Arrow tables of `sample` stand",
        ),
        Result(
            name="first scrape of all targets (templates learned)",
            value=samples / learned / 1e6,
            unit="M samples/s",
            note="once per target and change",
        ),
        Result(
            name="limit: one memchr pass over the text",
            value=samples / limit / 1e6,
            unit="M samples/s",
            note=f"{size / limit / 1e9:.1f} GB/s",
        ),
    ]


def _feed(reader: Reader, bodies: list[bytes]) -> None:
    for node, body in enumerate(bodies):
        reader.feed(str(node), body)


def _finish(reader: Reader) -> None:
    reader.finish(TIMESTAMP, cluster="bench", interval_s=15, source="bench")


def _check_whole(reader: Reader, bodies: list[bytes]) -> None:
    _feed(reader, bodies)
    _finish(reader)


def _find_best(work: Callable[[], object], rounds: int) -> float:
    seconds = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        work()
        seconds = min(seconds, time.process_time() - began)
    return seconds
