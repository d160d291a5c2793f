"""Generate the tables of `docs/dashboards.md`: each page's address, contents, tabs and pictures.

They are read from the source of `dashboards`, so that they need no Streamlit.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HEAD = ("| page | address | contents | picture |", "|---|---|---|---|")


def render_pages_table(root: Path = ROOT) -> str:
    """Return a table of pages for each section of the navigation."""
    sections = ast.literal_eval(_find_value(root / "dashboards/app.py", "SECTIONS"))
    lines = []
    for section, names in sections.items():
        lines += [f"## {section}", "", *HEAD]
        lines += [_write_row(root / f"dashboards/views/{name}.py") for name in names] + [""]
    return "\n".join(lines)


def _write_row(path: Path) -> str:
    name = path.stem.replace("_", "-")
    title = ast.literal_eval(_find_value(path, "TITLE"))
    contents = (ast.get_docstring(_parse(path)) or "").splitlines()[0]
    tabs = [*_read_tabs(path)]
    if tabs:
        contents += f" Tabs: {'; '.join(tabs)}."
    address = "/" if name == "overview" else f"/{name}"
    pictures = " ".join(f"[{tone}](pages/{name}-{tone}.png)" for tone in ("light", "dark"))
    return f"| {title} | `{address}` | {contents} | {pictures} |"


def _read_tabs(path: Path) -> Iterator[str]:
    try:
        tabs = _find_value(path, "TABS")
    except KeyError:
        return
    yield from (ast.literal_eval(key) for key in getattr(tabs, "keys", ()))


def _find_value(path: Path, name: str) -> ast.expr:
    """Return what a module assigns to a name, alone or in a tuple."""
    for node in _parse(path).body:
        for target, value in _read_assignments(node):
            if isinstance(target, ast.Name) and target.id == name:
                return value
    raise KeyError(name)


def _read_assignments(node: ast.stmt) -> Iterator[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.AnnAssign) and node.value is not None:
        yield node.target, node.value
    if isinstance(node, ast.Assign):
        (target,), value = node.targets, node.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            yield from zip(target.elts, value.elts, strict=True)
        else:
            yield target, value


def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))
