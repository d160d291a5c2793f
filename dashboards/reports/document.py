"""Define the content of a report in any format: a headline, then sections of blocks."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from dashboards.text import NO_PRICE
from fallow.window import Window

if TYPE_CHECKING:
    from dashboards.charts import Chart

Kind: TypeAlias = Literal["text", "usd", "number", "percent", "moment"]
ACTIONS_TITLE = "The three actions that save most"
Tone: TypeAlias = Literal["plain", "good", "waste", "warn"]


class HeadlineFigure(msgspec.Struct, frozen=True):
    """One figure of the headline: its name, its amount, and one line about it."""

    label: str
    value: str
    about: str = ""
    tone: Tone = "plain"
    change: str = ""
    """Against the period before, in words; "" = this figure is not compared."""


class ReportColumn(msgspec.Struct, frozen=True):
    """A column of a table: its key in the rows, its heading, and the format of its values."""

    name: str
    label: str
    kind: Kind = "text"
    why_missing: str = ""
    """Why a number of this column may be unknown; dollars without it have no price."""

    @property
    def is_number(self) -> bool:
        """Return whether a value that is null is unknown, and not absent."""
        return self.kind in ("usd", "number", "percent")

    @property
    def missing(self) -> str:
        """Return the reason for a number that is not known; empty = none is known."""
        return self.why_missing or (NO_PRICE if self.kind == "usd" else "")


class TextBlock(msgspec.Struct, frozen=True):
    """A paragraph, or a list of them as points."""

    lines: tuple[str, ...]
    points: bool = False
    small: bool = False


class ReportTable(msgspec.Struct, frozen=True):
    """Rows under columns; `left_out` is how many rows are not shown."""

    columns: tuple[ReportColumn, ...]
    rows: Sequence[Mapping[str, Any]]
    left_out: int = 0
    total: Mapping[str, Any] | None = None


class ReportChart(msgspec.Struct, frozen=True):
    """A chart and a text about what it shows."""

    chart: "Chart"
    alt: str


Block: TypeAlias = TextBlock | ReportTable | ReportChart


class ReportSection(msgspec.Struct, frozen=True):
    """A headed part of a report."""

    title: str
    blocks: tuple[Block, ...]


class Statement(msgspec.Struct, frozen=True):
    """A sentence of the first page, and its topic in a word or two."""

    about: str
    text: str


class ReportDocument(msgspec.Struct, frozen=True):
    """A whole report. `verdict`, `figures`, `actions` and `story` are its first page."""

    title: str
    audience: str
    window: Window
    made_at: datetime
    subject: str
    """The team, or the clusters, of the report."""
    figures: tuple[HeadlineFigure, ...]
    story: tuple[Statement, ...]
    warnings: tuple[str, ...]
    sections: tuple[ReportSection, ...]
    verdict: str = ""
    """One sentence of what matters most."""
    actions: ReportTable | None = None
    """The three actions that save most: who, what, how much."""
    first: tuple[Block, ...] = ()
    """Blocks of the first page, below the story."""
