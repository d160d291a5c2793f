"""No result of the engine stays open: it would keep its transaction, and all that is replaced."""

import ast
from pathlib import Path

import pytest

WAREHOUSE = Path(__file__).parents[2] / "warehouse"
WHOLE = {"fetchall", "to_arrow_table"}
"""Methods that read a result to its end, which closes it."""
PARTS = {"fetchone", "fetchmany", "fetch_record_batch", "fetch_df_chunk", "to_arrow_reader"}
QUERIES = ("SELECT", "FROM", "WITH")


def list_open_results(text: str) -> list[int]:
    """Return the lines where a result of `execute` or `sql` is not read to its end at once."""
    tree = ast.parse(text)
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    lines = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute):
            continue
        call = parents[node]
        is_open = node.attr in PARTS
        if node.attr in {"execute", "sql"} and isinstance(call, ast.Call) and call.func is node:
            user = parents[call]
            is_whole = isinstance(user, ast.Attribute) and user.attr in WHOLE
            is_change = isinstance(user, ast.Expr) and not starts_as_query(call)
            is_open = not (is_whole or is_change)
        if is_open:
            lines.append(node.lineno)
    return lines


def starts_as_query(call: ast.Call) -> bool:
    """Whether the statement is a literal that begins as a query and not as a change."""
    text = call.args[0] if call.args else None
    if isinstance(text, ast.JoinedStr):
        text = text.values[0]
    return (
        isinstance(text, ast.Constant)
        and isinstance(text.value, str)
        and text.value.lstrip().upper().startswith(QUERIES)
    )


def test_every_result_of_the_engine_is_read_to_its_end() -> None:
    # `statements` has the functions that do so; its `_execute` returns a result to them.
    paths = [p for p in WAREHOUSE.rglob("*.py") if p.name != "statements.py"]
    found = {str(p.relative_to(WAREHOUSE)): list_open_results(p.read_text()) for p in paths}
    assert {name: lines for name, lines in found.items() if lines} == {}, (
        "use fetch_rows, fetch_row, run_change or read_rows of warehouse.statements"
    )


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("row = cursor.execute('SELECT 1').fetchone()", 2),
        ("rows = cursor.execute('SELECT 1')", 1),
        ("for row in cursor.sql('FROM t'): pass", 1),
        ("cursor.execute(f'SELECT {x}')", 1),
        ("return_(cursor.execute('INSERT INTO t SELECT 1'))", 1),
        ("rows = cursor.execute('SELECT 1').fetchall()", 0),
        ("cursor.execute('INSERT INTO t FROM u')", 0),
    ],
)
def test_the_lint_sees_open_results(text: str, count: int) -> None:
    assert len(list_open_results(text)) == count
