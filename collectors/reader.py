"""Read the same targets again and again: only what stands after each line's labels is parsed.

The first look at a target goes through `collectors.exposition` and leaves a template
(`collectors.template`). Of the next look only the values are parsed, for the whole fleet in one
cast (`collectors.tails`). A target in which anything but a value has changed, and no other, is
learned again.
"""

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from collectors.assemble import Assembled, Catalog, Coded
from collectors.exposition import Line, Text, parse_labels, read
from collectors.frame import Floats, Ints
from collectors.series import Identity, Series, combine, identify, measure_of
from collectors.tails import Chunk, settle
from collectors.template import Template, learn

_SLACK = 20_000  # identities that may be remembered beyond twice the living ones


class Look(msgspec.Struct):
    """What one target's body held."""

    target: str
    values: int = 0
    """Values of metrics that Fallow knows, refused ones included."""
    refused: int = 0
    """Of these: blank, not finite, or outside their range."""
    rejected: int = 0
    """The refused and the lines that are not Prometheus text."""
    unknown: int = 0
    cut: bool = False


class Reading(msgspec.Struct, frozen=True):
    """All targets' rows, and a look per target in the order they were fed."""

    assembled: Assembled
    looks: list[Look]


class _Known(msgspec.Struct, frozen=True):
    """A target's template and what its lines mean."""

    template: Template
    known: Ints
    coded: Coded
    unknown: int


class Reader:
    """Turns bodies of many targets into rows; remembers each target's template."""

    def __init__(self) -> None:
        self._catalog = Catalog()
        self._templates: dict[str, _Known] = {}
        self._chunks: list[Chunk] = []
        self._looks: list[Look] = []

    def feed(
        self,
        target: str,
        body: bytes,
        labels: Mapping[str, str] | None = None,
        *,
        whole: bool = False,
    ) -> Look:
        """Take one target's body. `labels` are the target's own, such as `instance`."""
        look = Look(target)
        known = self._templates.get(target)
        tails = None if known is None else known.template.tails(body)
        if known is None or tails is None:
            chunk = self._learn(target, read(body, whole=whole), body, labels or {}, look)
        else:
            look.unknown = known.unknown
            shape = known.template
            chunk = Chunk(known.coded, tails, known.known, shape.values, shape.stamped)
        self._chunks.append(chunk)
        self._looks.append(look)
        return look

    def finish(self, ts: np.datetime64, *, cluster: str, interval_s: float, source: str) -> Reading:
        """Return the rows of everything fed since the last time.

        `ts` is the moment of lines that carry no timestamp of their own.
        """
        self.settle()
        chunks, looks = self._chunks, self._looks
        self._chunks, self._looks = [], []
        values = _joined([c.values for c in chunks if c.values is not None])
        moment = _moments(chunks, len(values), ts.astype("datetime64[us]"))
        coded = Coded.joined([c.coded for c in chunks])
        assembled = self._catalog.assemble(
            coded, moment, values, cluster=cluster, interval_s=interval_s, source=source
        )
        sizes = np.array([len(c.coded) for c in chunks], np.int64)
        owner = np.repeat(np.arange(len(chunks)), sizes)
        refused = np.bincount(owner[assembled.refused], minlength=len(chunks))
        for look, chunk, bad in zip(looks, chunks, refused.tolist(), strict=True):
            look.values = len(chunk.coded)
            look.refused = bad
            look.rejected += bad + chunk.rejected
            look.unknown -= chunk.strange
        if len(self._catalog) > 2 * len(np.unique(coded.identity)) + _SLACK:
            # Pods come and go; their label sets are not kept for ever.
            self._catalog, self._templates = Catalog(), {}
        return Reading(assembled, looks)

    def settle(self) -> None:
        """Cast the values of everything fed so far; `finish` does so by itself."""
        self._chunks = settle(self._chunks)

    def _learn(
        self, target: str, text: Text, body: bytes, labels: Mapping[str, str], look: Look
    ) -> Chunk:
        known, series = meanings(text.lines, labels)
        coded = self._catalog.code(series)
        place = np.array(known, np.int64)
        look.rejected += text.rejected
        look.cut = text.cut
        look.unknown = len(text.lines) - len(known)
        values = np.array([line.value for line in text.lines], np.float64)[place]
        stamps = np.array(
            [-1 if line.timestamp_us is None else line.timestamp_us for line in text.lines],
            np.int64,
        )[place]
        template = learn(text, body) if known else None
        if template is None:
            self._templates.pop(target, None)
        else:
            self._templates[target] = _Known(template, place, coded, look.unknown)
        return Chunk(coded, values=values, stamps=stamps)


def meanings(lines: list[Line], labels: Mapping[str, str]) -> tuple[list[int], list[Series]]:
    """Return which lines mean something to Fallow, and what."""
    known: list[int] = []
    series: list[Series] = []
    seen: dict[bytes, tuple[dict[str, str], Identity | None]] = {}
    for place, line in enumerate(lines):
        measure = measure_of(line.name)
        if measure is None:
            continue
        if line.labels not in seen:
            own = {**labels, **parse_labels(line.labels)}
            seen[line.labels] = own, identify(own)
        own, identity = seen[line.labels]
        meaning = None if identity is None else combine(measure, identity, own)
        if meaning is not None:
            known.append(place)
            series.append(meaning)
    return known, series


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0)


def _moments(chunks: list[Chunk], size: int, ts: np.datetime64) -> npt.NDArray[np.datetime64]:
    """Return each value's moment: its line's timestamp, else the look's."""
    moments = np.full(size, ts)
    start = 0
    for chunk in chunks:
        end = start + len(chunk.coded)
        if chunk.stamps is not None:
            own = chunk.stamps.astype("datetime64[us]")
            moments[start:end] = np.where(chunk.stamps < 0, ts, own)
        start = end
    return moments
