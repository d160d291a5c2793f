"""Read the same targets repeatedly: only the text after each line's labels is parsed.

The first scrape of a target is parsed by `collectors.exposition`, which leaves a template
(`collectors.template`). Of the next scrape only the values are parsed, in one cast for the whole
fleet (`collectors.tails`). If anything but a value has changed in a target, only this target is
parsed in full again.
"""

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from collectors.assemble import Assembled, assemble
from collectors.exposition import ExpositionLine, ExpositionText, parse_labels, read
from collectors.series import Identity, Series, combine, identify, measure_of
from collectors.series_codes import CodedSeries, Floats, Ints, SeriesCatalog
from collectors.tails import TailChunk, settle
from collectors.template import Template, learn

_LINES_PER_SAMPLE = 10  # comments and empty lines included
_SLACK = 20_000  # identities that may be stored beyond twice the current number


class ScrapeLimits(msgspec.Struct, frozen=True):
    """What one scrape may contain, with the meanings of Prometheus' scrape configuration.

    A scrape that exceeds a limit is refused as a whole. 0 = no limit.
    """

    sample_limit: int = 0
    """Samples, of metrics that Fallow does not know too."""
    label_limit: int = 0
    """Labels of one sample."""
    label_value_length_limit: int = 0
    """Bytes of one label's value."""


class TargetScrape(msgspec.Struct):
    """The content of one target's body."""

    target: str
    values: int = 0
    """Values of metrics that Fallow knows, rejected ones included."""
    refused: int = 0
    """Of these: blank, not finite, or outside their range."""
    rejected: int = 0
    """Rejected values, and lines that are not Prometheus text."""
    clipped: int = 0
    """Ratios just above the whole, which count as the whole."""
    unknown: int = 0
    cut: bool = False
    excess: str = ""
    """The limit that it exceeds, and by what; nothing of it is stored then."""


class ScrapeCycle(msgspec.Struct, frozen=True):
    """The rows of all targets, and a scrape per target in the order of `feed`."""

    assembled: Assembled
    scrapes: list[TargetScrape]


class _KnownTarget(msgspec.Struct, frozen=True):
    """A target's template and the meaning of its lines."""

    template: Template
    lines_read: Ints
    coded: CodedSeries
    unknown: int


class Reader:
    """Turns bodies of many targets into rows; remembers each target's template."""

    def __init__(self, limits: ScrapeLimits | None = None) -> None:
        self._limits = limits or ScrapeLimits()
        self._catalog = SeriesCatalog()
        self._templates: dict[str, _KnownTarget] = {}
        self._chunks: list[TailChunk] = []
        self._scrapes: list[TargetScrape] = []

    def feed(
        self,
        target: str,
        body: bytes,
        labels: Mapping[str, str] | None = None,
        *,
        is_complete: bool = False,
    ) -> TargetScrape:
        """Add one target's body. `labels` are the target's own, such as `instance`."""
        scrape = TargetScrape(target)
        known_target = self._templates.get(target)
        tails = None if known_target is None else known_target.template.tails(body)
        if known_target is None or tails is None:
            # A body that fits a template has the samples and labels that were accepted before.
            scrape.excess = find_excess_samples(body, self._limits)
            text = read(b"" if scrape.excess else body, whole=is_complete)
            scrape.excess = scrape.excess or _find_excess_labels(text.lines, self._limits)
            if scrape.excess:
                self._templates.pop(target, None)
                return scrape
            chunk = self._learn(target, text, body, labels or {}, scrape)
        else:
            scrape.unknown = known_target.unknown
            shape = known_target.template
            chunk = TailChunk(
                known_target.coded, tails, known_target.lines_read, shape.values, shape.stamped
            )
        self._chunks.append(chunk)
        self._scrapes.append(scrape)
        return scrape

    def finish(
        self, ts: np.datetime64, *, cluster: str, interval_s: float, source: str
    ) -> ScrapeCycle:
        """Return the rows of all bodies since the last call.

        `ts` is the timestamp of lines without their own.
        """
        self.settle()
        chunks, scrapes = self._chunks, self._scrapes
        self._chunks, self._scrapes = [], []
        values = _join_codes([c.values for c in chunks if c.values is not None])
        timestamps = _build_timestamps(chunks, len(values), ts.astype("datetime64[us]"))
        coded = CodedSeries.joined([c.coded for c in chunks])
        assembled = assemble(
            self._catalog,
            coded,
            timestamps,
            values,
            cluster=cluster,
            interval_s=interval_s,
            source=source,
        )
        sizes = np.array([len(c.coded) for c in chunks], np.int64)
        owner = np.repeat(np.arange(len(chunks)), sizes)
        refused, clipped = (
            np.bincount(owner[flags], minlength=len(chunks)).tolist()
            for flags in (assembled.refused, assembled.clipped)
        )
        for scrape, chunk, bad, over in zip(scrapes, chunks, refused, clipped, strict=True):
            scrape.values, scrape.clipped = len(chunk.coded), over
            scrape.refused = bad
            scrape.rejected += bad + chunk.rejected
            scrape.unknown -= chunk.strange
        if len(self._catalog) > 2 * len(np.unique(coded.identity)) + _SLACK:
            # Pods come and go; their label sets must not be kept without end.
            self._catalog, self._templates = SeriesCatalog(), {}
        return ScrapeCycle(assembled, scrapes)

    def settle(self) -> None:
        """Cast the values of all bodies so far; `finish` does so itself."""
        self._chunks = settle(self._chunks)

    def _learn(
        self,
        target: str,
        text: ExpositionText,
        body: bytes,
        labels: Mapping[str, str],
        scrape: TargetScrape,
    ) -> TailChunk:
        line_numbers, series = find_meanings(text.lines, labels)
        coded = self._catalog.code(series)
        place = np.array(line_numbers, np.int64)
        scrape.rejected += text.rejected
        scrape.cut = text.cut
        scrape.unknown = len(text.lines) - len(line_numbers)
        values = np.array([line.value for line in text.lines], np.float64)[place]
        stamps = np.array(
            [-1 if line.timestamp_us is None else line.timestamp_us for line in text.lines],
            np.int64,
        )[place]
        template = learn(text, body) if line_numbers else None
        if template is None:
            self._templates.pop(target, None)
        else:
            self._templates[target] = _KnownTarget(template, place, coded, scrape.unknown)
        return TailChunk(coded, values=values, stamps=stamps)


def find_excess_samples(body: bytes, limits: ScrapeLimits) -> str:
    """Return how a body exceeds the limit of samples; comments are counted from ten each on."""
    limit = limits.sample_limit
    lines = body.count(b"\n")
    if not limit or lines <= limit:
        return ""
    if lines > _LINES_PER_SAMPLE * limit:
        return f"sample_limit: {lines:,} lines, {limit:,} samples are allowed"
    count = sum(1 for line in body.split(b"\n") if line.strip() and not line.startswith(b"#"))
    return f"sample_limit: {count:,} samples, {limit:,} are allowed" if count > limit else ""


def _find_excess_labels(lines: Iterable[ExpositionLine], limits: ScrapeLimits) -> str:
    """Return how a line exceeds a limit of labels; only suspicious lines are parsed."""
    most, longest = limits.label_limit, limits.label_value_length_limit
    for line in lines:
        if most and line.labels.count(b"=") > most:
            count = len(parse_labels(line.labels))
            if count > most:
                return f"label_limit: {line.name} has {count} labels, {most} are allowed"
        if longest and len(line.labels) > longest:
            for name, value in parse_labels(line.labels).items():
                if (size := len(value.encode())) > longest:
                    return (
                        f"label_value_length_limit: {name} of {line.name} has {size:,} bytes, "
                        f"{longest:,} are allowed"
                    )
    return ""


def find_meanings(
    lines: list[ExpositionLine], labels: Mapping[str, str]
) -> tuple[list[int], list[Series]]:
    """Return which lines Fallow knows, and their meaning."""
    line_numbers: list[int] = []
    series: list[Series] = []
    identities_seen: dict[bytes, tuple[dict[str, str], Identity | None]] = {}
    for place, line in enumerate(lines):
        measure = measure_of(line.name)
        if measure is None:
            continue
        if line.labels not in identities_seen:
            own = {**labels, **parse_labels(line.labels)}
            identities_seen[line.labels] = own, identify(own)
        own, identity = identities_seen[line.labels]
        meaning = None if identity is None else combine(measure, identity, own)
        if meaning is not None:
            line_numbers.append(place)
            series.append(meaning)
    return line_numbers, series


def _join_codes(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.zeros(0)


def _build_timestamps(
    chunks: list[TailChunk], size: int, ts: np.datetime64
) -> npt.NDArray[np.datetime64]:
    """Return each value's timestamp: its line's, else the scrape's."""
    times = np.full(size, ts)
    start = 0
    for chunk in chunks:
        end = start + len(chunk.coded)
        if chunk.stamps is not None:
            own = chunk.stamps.astype("datetime64[us]")
            times[start:end] = np.where(chunk.stamps < 0, ts, own)
        start = end
    return times
