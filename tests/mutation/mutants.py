"""Mutants: a source text with one operator, constant, call or statement changed.

Python is read by `ast`, SQL by its tokens; a place of either that can be changed is a statement
here. Libraries of mutants (cosmic-ray, mutmut) read Python alone, and half of the ledger is SQL.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple


class Mutant(NamedTuple):
    """One change of one file: what stands from `start` to `end` becomes `new`."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str

    def apply(self, text: str) -> str:
        """Return the file's text with the change."""
        return text[: self.start] + self.new + text[self.end :]


COMPARISONS: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
OPERATORS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
SQL = (
    (re.compile(r"(?<![<>=!|])<(?![=>])"), "<="),
    (re.compile(r"<="), "<"),
    (re.compile(r"(?<![-<>=])>(?!=)"), ">="),
    (re.compile(r">="), ">"),
    (re.compile(r"<>|!="), "="),
    (re.compile(r"(?<= )\+(?= )"), "-"),
    (re.compile(r"(?<= )-(?= )"), "+"),
    (re.compile(r"(?<= )\*(?= )"), "/"),
    (re.compile(r"(?<= )/(?= )"), "*"),
    (re.compile(r"\bAND\b"), "OR"),
    (re.compile(r"\bOR\b(?! REPLACE)"), "AND"),
    (re.compile(r"\bIS NOT NULL\b"), "IS NULL"),
    (re.compile(r"\bIS NULL\b"), "IS NOT NULL"),
    (re.compile(r"\bNOT (?=EXISTS\b|\w+\.|\()"), ""),
    (re.compile(r"\bLEFT JOIN\b"), "JOIN"),
    (re.compile(r"\bleast\b(?=\()"), "greatest"),
    (re.compile(r"\bgreatest\b(?=\()"), "least"),
    (re.compile(r"\bmin\b(?=\()"), "max"),
    (re.compile(r"\bmax\b(?=\()"), "min"),
    (re.compile(r"\bbool_and\b"), "bool_or"),
    (re.compile(r"\bbool_or\b"), "bool_and"),
    (re.compile(r"\bTRUE\b"), "FALSE"),
    (re.compile(r"\bFALSE\b"), "TRUE"),
)
_NUMBER = re.compile(r"(?<![\w.$])\d+(?:\.\d+)?(?![\w.])")
_BETWEEN = re.compile(r"(\bBETWEEN\b.*?\b)AND\b", re.DOTALL)
_UNSEEN = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^']|'')*'", re.DOTALL)


def mutants(path: str, text: str) -> list[list[Mutant]]:
    """Return the mutants of a file, those of a statement (in SQL, of a line) together."""
    changes = _of_sql(path, text) if path.endswith(".sql") else _of_python(path, text)
    statements: dict[object, list[Mutant]] = {}
    for key, mutant in changes:
        statements.setdefault(key, []).append(mutant)
    return [sorted(statement) for _, statement in sorted(statements.items(), key=lambda s: s[1][0])]


def find_statement(path: str, text: str, line: int) -> range:
    """Return the lines of the Python statement, less the statements in its body, at a line."""
    lines = range(line, line + 1)
    if path.endswith(".py"):
        for node in ast.walk(ast.parse(text)):  # the outermost come first
            if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
                body = getattr(node, "body", None)
                last = body[0].lineno - 1 if body else node.end_lineno or line
                lines = range(node.lineno, max(last, node.lineno) + 1)
    return lines


def _of_sql(path: str, text: str) -> Iterator[tuple[object, Mutant]]:
    code = _UNSEEN.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    code = _BETWEEN.sub(lambda m: f"{m[1]}   ", code)

    def mutant(match: re.Match[str], new: str) -> tuple[object, Mutant]:
        line = text.count("\n", 0, match.start()) + 1
        return line, Mutant(path, line, match.start(), match.end(), match[0], new)

    for pattern, new in SQL:
        yield from (mutant(match, new) for match in pattern.finditer(code))
    for match in _NUMBER.finditer(code):
        yield mutant(match, _next_number(match[0]))


def _of_python(path: str, text: str) -> Iterator[tuple[object, Mutant]]:
    source = _Source(path, text)
    for node in ast.walk(ast.parse(text)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from source.of_statement(child)


class _Source:
    """A file's text, with the offsets of ast's lines and bytes."""

    def __init__(self, path: str, text: str) -> None:
        self.path, self.text = path, text
        self.lines = text.splitlines(keepends=True)
        self.starts = [0]
        for line in self.lines:
            self.starts.append(self.starts[-1] + len(line))

    def of_statement(self, statement: ast.stmt) -> Iterator[tuple[object, Mutant]]:
        """Yield what can be changed of a statement's own expressions, and the statement itself."""
        key = self.start(statement)
        for mutant in self._removal(statement):
            yield key, mutant
        for node in _expressions(statement):
            for mutant in self._of_expression(node):
                yield key, mutant

    def _removal(self, statement: ast.stmt) -> Iterator[Mutant]:
        removable = isinstance(statement, ast.AugAssign | ast.Raise | ast.Continue | ast.Break)
        called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if removable or called:
            yield self.mutant(self.start(statement), self.end(statement), "pass")

    def _of_expression(self, node: ast.AST) -> Iterator[Mutant]:
        yield from self._of_operators(node)
        yield from self._of_values(node)

    def _of_operators(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Compare(left, operators, comparators):
                for before, operator, after in zip(
                    (left, *comparators), operators, comparators, strict=False
                ):
                    yield from self._between(before, after, COMPARISONS.get(type(operator)))
            case ast.BinOp(left, operator, right) if not _is_text_or_type(left, right):
                yield from self._between(left, right, OPERATORS.get(type(operator)))
            case ast.BoolOp(ast.And(), [first, second, *_]):
                yield from self._between(first, second, ("and", "or"))
            case ast.BoolOp(ast.Or(), [first, second, *_]):
                yield from self._between(first, second, ("or", "and"))
            case ast.UnaryOp(ast.Not() | ast.Invert() as operator):
                length = len("not" if isinstance(operator, ast.Not) else "~")
                yield self.mutant(self.start(node), self.start(node) + length, "")

    def _of_values(self, node: ast.AST) -> Iterator[Mutant]:
        match node:
            case ast.Constant(bool(value)):
                yield self.mutant(self.start(node), self.end(node), str(not value))
            case ast.Constant(int() | float()):
                start, end = self.start(node), self.end(node)
                yield self.mutant(start, end, _next_number(self.text[start:end]))
            case ast.Call(ast.Name(name) as function) if name in CALLS:
                yield self.mutant(self.start(function), self.end(function), CALLS[name])
            case ast.IfExp(test=test) | ast.If(test=test) | ast.While(test=test):
                start, end = self.start(test), self.end(test)
                yield self.mutant(start, end, f"(not ({self.text[start:end]}))")

    def _between(
        self, before: ast.AST, after: ast.AST, change: tuple[str, str] | None
    ) -> Iterator[Mutant]:
        if change is None:
            return
        start, end = self.end(before), self.start(after)
        words = r"\s+".join(map(re.escape, change[0].split()))
        place = re.search(words, self.text[start:end])
        if place is not None:
            yield self.mutant(start + place.start(), start + place.end(), change[1])

    def mutant(self, start: int, end: int, new: str) -> Mutant:
        """Return the change of a part of the text."""
        line = self.text.count("\n", 0, start) + 1
        return Mutant(self.path, line, start, end, self.text[start:end], new)

    def start(self, node: ast.AST) -> int:
        """Return where a node begins in the text."""
        return self._offset(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def end(self, node: ast.AST) -> int:
        """Return where a node ends in the text."""
        return self._offset(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _offset(self, line: int, column: int) -> int:
        head = self.lines[line - 1].encode()[:column]
        return self.starts[line - 1] + len(head.decode())


def _expressions(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield a statement and its expressions, less annotations and the statements in its body."""
    yield statement
    match statement:
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            parts: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
        case ast.AnnAssign(value=value):
            parts = [value]
        case ast.Import() | ast.ImportFrom() | ast.ClassDef():
            parts = []
        case _:
            parts = list(ast.iter_child_nodes(statement))
    for part in parts:
        if part is not None and not isinstance(part, ast.stmt | ast.ExceptHandler):
            yield from _walk(part)


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """Yield a node and all below it, less statements and annotations."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.stmt | ast.arg):
            yield from _walk(child)


def _is_text_or_type(*operands: ast.expr) -> bool:
    """Return whether an operand is a string or a type: "a" + b, and Pod | None."""
    for operand in operands:
        match operand:
            case ast.JoinedStr() | ast.Constant(str() | None):
                return True
            case ast.Name(name) if name[0].isupper() and not name.isupper():
                return True
    return False


def _next_number(text: str) -> str:
    return str(float(text) + 1) if re.search(r"[.eE]", text) else str(int(text, 0) + 1)
