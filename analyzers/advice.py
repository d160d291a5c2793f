"""What to do about each kind of finding: `advice.csv` beside an analyzer."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import msgspec

from analyzers.queries import load_records
from fallow.models import Effort, Saving
from fallow.rows import Row


class Advice(Row, frozen=True):
    """One row of an `advice.csv`; its texts have gaps in braces."""

    kind: str
    verb: str
    effort: Effort
    why: str
    undo: str = ""
    caution: str = ""
    saving: Saving = "capacity"

    def fill(self, words: Mapping[str, Any]) -> "Advice":
        """Return the advice with the gaps of its texts filled."""
        return msgspec.structs.replace(
            self,
            why=self.why.format(**words),
            undo=self.undo.format(**words),
            caution=self.caution.format(**words),
        )


@cache
def read_advice(analyzer: str) -> Mapping[str, Advice]:
    """Return the advice of an analyzer's `advice.csv` by the kind of finding."""
    return {row.kind: row for row in load_records(f"{analyzer}/advice", Advice)}
