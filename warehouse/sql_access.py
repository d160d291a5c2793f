"""Allow one SELECT that reads the tables' views and calls pure functions; refuse all else.

The engine parses the text; this module walks the engine's own syntax tree. What it does not know
is refused: a kind of node that `sql_nodes.csv` does not have, a function that `sql_functions.csv`
does not allow, a table that is not a view or a common table expression in scope. So a new release
of the engine adds no function that a query may call before a person has added it to the table.
"""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import duckdb
import msgspec

from fallow import tables
from fallow.errors import UsageError
from fallow.resources import read_table

INTERNAL_TABLES: dict[str, tuple[str, ...]] = {
    "watermark": ("name",),
    "dirty": ("cluster",),
    "unposted": ("cluster",),
    "cold_file": ("noun", "path", "sha256"),
    "schema_version": ("fallow",),
}
"""The warehouse's own tables that have a view beside those of `fallow/tables.csv`, and the columns
of each that are texts."""

_SCHEMAS = ("", "main")
"""The parser writes `main` before the functions that it adds for list comprehensions."""

_MOST_ALLOWED = 1000
_ALLOWED: dict[str, frozenset[str]] = {}
"""Texts that were checked in this process and only read, and the tables that each reads; none for
a text that shows what tables there are."""

_SELECT_HINT = (
    "write SELECT, WITH, FROM, VALUES, DESCRIBE or SUMMARIZE; a PIVOT names its values: "
    "FROM ... PIVOT (sum(x) FOR y IN (...))"
)
_TABLE_HINT = "`fallow warehouse query 'SHOW TABLES'` lists the tables"
_FUNCTION_HINT = (
    "a query may call functions that compute from values (round, sum, date_trunc, "
    "list_transform, range); the rules stand in docs/warehouse.md#queries"
)


class FunctionRule(msgspec.Struct, frozen=True):
    """Whether queries may call a function, or all functions whose names begin like this.

    `kind` is table (in FROM), scalar or aggregate; `reason` says why it is refused.
    """

    name: str
    kind: str
    access: str
    reason: str

    @property
    def allowed(self) -> bool:
        """Whether queries may call it."""
        return self.access == "allow"


@cache
def read_function_rules() -> tuple[FunctionRule, ...]:
    """Return the rules of `sql_functions.csv`, in their order."""
    rows = read_table("warehouse", "sql_functions.csv")
    return tuple(msgspec.convert(row, FunctionRule) for row in rows)


def find_function_rule(name: str, *, in_from: bool) -> FunctionRule | None:
    """Return the rule for a function in FROM or in an expression, or None when there is none.

    A rule with the whole name comes before one for names that begin alike (`duckdb_*`).
    """
    named, families = _group_rules()[in_from]
    if name in named:
        return named[name]
    return next((rule for rule in families if name.startswith(rule.name[:-1])), None)


def check_select(cursor: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse all but one SELECT that only reads; a text that was allowed is not parsed again.

    Raises:
        UsageError: it is not one SELECT, or it uses what a query may not use.
    """
    if sql in _ALLOWED:
        return
    names: set[str] = set()
    shows = False
    try:
        for node, scope in _walk_nodes(_parse_select(cursor, sql)):
            _check_node(node, scope)
            shows = shows or node.get("type") == "SHOW_REF"
            if node.get("type") == "BASE_TABLE":
                names.add(_fold_case(str(node["table_name"])))
    except RecursionError as error:
        raise UsageError("the query is nested too deep", hint="write it in steps (WITH)") from error
    if len(_ALLOWED) >= _MOST_ALLOWED:
        _ALLOWED.clear()
    _ALLOWED[sql] = frozenset() if shows else frozenset(names & _list_views())


def list_read_tables(sql: str) -> frozenset[str]:
    """Return the tables that a text reads; none where it was not checked in this process."""
    return _ALLOWED.get(sql, frozenset())


def _parse_select(cursor: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """Return the engine's syntax tree of a text that is one SELECT.

    The serializer only parses. The engine's `extract_statements` must not see such a text: it
    runs some statements in part, and for IMPORT DATABASE it opens a file.
    """
    literal = "'" + sql.replace("'", "''") + "'"
    row = cursor.execute(f"SELECT json_serialize_sql({literal})").fetchall()[0]
    tree: dict[str, Any] = json.loads(row[0]) if row else {"error": True}
    if tree["error"] and tree.get("error_type") == "parser":
        raise UsageError(
            f"the warehouse refuses that query: {tree['error_message']}", hint=_SELECT_HINT
        )
    if tree["error"] or len(tree["statements"]) != 1:
        raise UsageError("the warehouse answers one SELECT at a time", hint=_SELECT_HINT)
    return tree["statements"]


@cache
def _read_node_names(*, expressions: bool) -> frozenset[str]:
    """Return the allowed classes of expressions, or the allowed types of all other nodes."""
    rows = read_table("warehouse", "sql_nodes.csv")
    return frozenset(r["name"] for r in rows if (r["kind"] == "expression") == expressions)


@cache
def _list_views() -> frozenset[str]:
    return frozenset((*tables.list_table_names(), *INTERNAL_TABLES))


@cache
def _group_rules() -> dict[bool, tuple[dict[str, FunctionRule], list[FunctionRule]]]:
    grouped: dict[bool, tuple[dict[str, FunctionRule], list[FunctionRule]]] = {}
    for in_from in (False, True):
        rules = [rule for rule in read_function_rules() if (rule.kind == "table") == in_from]
        families = [rule for rule in rules if rule.name.endswith("_*")]
        grouped[in_from] = ({r.name: r for r in rules if r not in families}, families)
    return grouped


def _walk_nodes(tree: Any) -> Iterator[tuple[dict[str, Any], frozenset[str]]]:
    """Yield each node with the names of the common table expressions in its scope."""
    stack: list[tuple[Any, frozenset[str]]] = [(tree, frozenset())]
    while stack:
        node, scope = stack.pop()
        if isinstance(node, list):
            stack += [(item, scope) for item in node]
        elif isinstance(node, dict):
            yield node, scope
            stack += _list_children(node, scope)


def _list_children(
    node: dict[str, Any], scope: frozenset[str]
) -> Iterator[tuple[Any, frozenset[str]]]:
    rest = dict(node)
    for entry in rest.pop("cte_map", {"map": []})["map"]:
        # A common table expression sees those before it. Only the second part of a recursive one
        # sees itself: elsewhere its name is the name of a table.
        yield entry["value"], scope
        scope |= {_fold_case(entry["key"])}
    if node.get("type") == "RECURSIVE_CTE_NODE":
        yield rest.pop("right"), scope | {_fold_case(node["cte_name"])}
    if node.get("type") == "TABLE_FUNCTION":
        # The function itself was checked as one in FROM; its arguments are expressions.
        rest |= rest.pop("function")
    for value in rest.values():
        yield value, scope


def _check_node(node: dict[str, Any], scope: frozenset[str]) -> None:
    kind = node.get("type")
    if "class" in node:
        if node["class"] not in _read_node_names(expressions=True):
            raise UsageError(f"a query may not use the expression {node['class']}")
        if "function_name" in node:
            _check_function(node, in_from=False)
    elif isinstance(kind, str) and kind not in _read_node_names(expressions=False):
        raise UsageError(f"a query may not use the clause {kind}")
    elif kind == "TABLE_FUNCTION":
        _check_function(node["function"], in_from=True)
    elif kind == "BASE_TABLE":
        _check_table(node, scope)
    elif kind == "SHOW_REF" and node["query"] is None and node["table_name"] != '"tables"':
        raise UsageError("a query may not show what other catalogs have", hint=_TABLE_HINT)


def _check_function(node: dict[str, Any], *, in_from: bool) -> None:
    name = _fold_case(str(node.get("function_name", node["class"])))
    if node.get("schema") not in _SCHEMAS or node.get("catalog") != "":
        raise UsageError(
            f"a query calls functions without a schema or a value before the name, and "
            f"{name} has one",
            hint=f"write {name}(...)",
        )
    rule = find_function_rule(name, in_from=in_from)
    if rule is None:
        raise UsageError(
            f"a query may not call {name}: it is not among the functions that Fallow knows",
            hint=_FUNCTION_HINT,
        )
    if not rule.allowed:
        raise UsageError(f"a query may not call {name}: {rule.reason}", hint=_FUNCTION_HINT)


def _check_table(node: dict[str, Any], scope: frozenset[str]) -> None:
    name = str(node["table_name"])
    parts = [part for part in (node["catalog_name"], node["schema_name"], name) if part]
    if len(parts) > 1:
        raise UsageError(
            f"a query reads the tables' views, not {'.'.join(parts)}",
            hint="write the table's name alone; " + _TABLE_HINT,
        )
    if node["at_clause"] is not None:
        raise UsageError(f"{name} has no versions to read AT", hint=f"write FROM {name}")
    if _fold_case(name) not in scope | _list_views():
        raise UsageError(
            f"there is no table {name}",
            hint=f"there are {', '.join(tables.list_table_names())}",
        )


def _fold_case(name: str) -> str:
    # As the engine does it: only the letters A to Z.
    return name.encode().lower().decode()
