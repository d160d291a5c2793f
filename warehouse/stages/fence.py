"""Keep a stage from overwriting what other writers committed while its slices ran."""

from typing import TYPE_CHECKING

from fallow.errors import TemporaryError

if TYPE_CHECKING:
    import duckdb

_METADATA = "__ducklake_metadata_lake"


class StaleStageError(TemporaryError):
    """Report a stage that would overwrite or miss rows that came after its snapshot."""


def refuse_changed(
    cursor: "duckdb.DuckDBPyConnection", stage: str, tables: frozenset[str], snapshot: int
) -> None:
    """Refuse to commit a stage where another writer changed one of these tables meanwhile.

    Called in the transaction of the commit, before its own changes. A writer that does the same
    work without slices holds no lease of a stage: only this notices it.

    Raises:
        StaleStageError: naming the tables; nothing may be committed.
    """
    if changed := sorted(list_changed(cursor, snapshot) & tables):
        raise StaleStageError(
            f"{', '.join(changed)} changed while the stage {stage} ran; it stored nothing",
            hint="try again",
        )


def list_changed(cursor: "duckdb.DuckDBPyConnection", snapshot: int) -> set[str]:
    """Return the tables whose rows were added or deleted since; a compaction changes none."""
    names = dict(
        cursor.execute(
            f"SELECT table_id::VARCHAR, table_name FROM {_METADATA}.ducklake_table"
        ).fetchall()
    )
    rows = cursor.execute(
        "SELECT changes FROM ducklake_snapshots('lake') WHERE snapshot_id > $snapshot",
        {"snapshot": snapshot},
    ).fetchall()
    return {
        names.get(number, number)
        for (changes,) in rows
        for kind, numbers in changes.items()
        if "insert" in kind or ("delete" in kind and "rewrite" not in kind)
        for number in numbers
    }
