"""Generate the picture and the tables of `docs/architecture.md` from the code.

The layers are those of the import contracts in `pyproject.toml`; an arrow is an import that a file
really has. An import that other arrows imply (command line -> service -> operations) has no arrow.

    python -m tools.architecture docs

A test keeps the page equal to the generated one.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import msgspec

ROOT = Path(__file__).resolve().parents[1]
HEAD, TAIL = "<!-- imports: written from the code -->", "<!-- end of imports -->"
STYLE = """\
    .card { fill: #ffffff; stroke: #d1d9e0; } .box { fill: #f6f8fa; stroke: #8c959f; }
    .ink { fill: #1f2328; } .soft { fill: #59636e; } .head { fill: #59636e; }
    .wire { stroke: #59636e; fill: none; stroke-width: 1.5; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #0d1117; stroke: #3d444d; } .box { fill: #161b22; stroke: #6e7681; }
      .ink { fill: #e6edf3; } .soft { fill: #9da7b3; } .head { fill: #9da7b3; }
      .wire { stroke: #9da7b3; }
    }
"""
WIDTH, MARGIN, GAP = 980, 24, 14
LINE, TITLE = 17, 26  # heights of a line of text and of a box's title
BETWEEN = 40  # room for an arrow between two rows
LETTER = 6.6  # mean width of a letter at 12.5 px

Layers = list[list[str]]
Imports = dict[str, set[str]]


class Architecture(msgspec.Struct, frozen=True):
    """The packages, their layers and their imports; an inner package has a dotted name."""

    layers: Layers
    """From the top; packages of one layer import none of each other."""
    inner: dict[str, Layers]
    """Layers within a package, by the package."""
    imports: Imports
    contracts: list[str]
    """What `lint-imports` checks, in its words."""
    restricted: dict[str, set[str]]
    """Third parties that few packages may import, by the packages that do."""


class Box(msgspec.Struct, frozen=True):
    """A package in the picture, in pixels."""

    name: str
    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...] = ()

    @property
    def bottom(self) -> float:
        """Return where the box ends."""
        return self.y + self.height


@cache
def read_architecture(root: Path = ROOT) -> Architecture:
    """Read the contracts and every import of the packages."""
    linter = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
        "importlinter"
    ]
    packages: list[str] = linter["root_packages"]
    contracts: list[dict[str, Any]] = linter["contracts"]
    layered = [_read_layers(c["layers"]) for c in contracts if c["type"] == "layers"]
    outer = next(layers for layers in layered if "." not in layers[0][0])
    inner = {layers[0][0].partition(".")[0]: layers for layers in layered if layers is not outer}
    forbidden = {m for c in contracts for m in c.get("forbidden_modules", ()) if "." not in m}
    imports: Imports = {}
    restricted: dict[str, set[str]] = {}
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            name = _get_inner_name(path.relative_to(root).with_suffix("").parts, inner)
            for module in list_imported_modules(path.read_text(encoding="utf-8")):
                target = _get_inner_name(tuple(module.split(".")), inner)
                if target.partition(".")[0] in packages:
                    imports.setdefault(name, set()).add(target)
                elif target in forbidden:
                    restricted.setdefault(package, set()).add(target)
    for name, targets in imports.items():
        targets.discard(name)
    names = [contract["name"] for contract in contracts]
    return Architecture(outer, inner, imports, names, restricted)


def list_imported_modules(text: str) -> Iterator[str]:
    """Yield the full names of the modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _read_layers(rows: list[str]) -> Layers:
    return [[name.strip() for name in row.replace(":", "|").split("|")] for row in rows]


def _get_inner_name(parts: tuple[str, ...], inner: dict[str, Layers]) -> str:
    dotted = parts[0] in inner and len(parts) > 1
    return f"{parts[0]}.{parts[1]}" if dotted else parts[0]


def reduce_imports(imports: Imports) -> set[tuple[str, str]]:
    """Return the imports that no chain of other imports implies; a cycle implies none."""

    def implied(name: str, target: str, other: str) -> bool:
        above, below = _reach(imports, other), _reach(imports, target)
        return other != target and target in above and name not in above and other not in below

    return {
        (name, target)
        for name, targets in imports.items()
        for target in targets
        if not any(implied(name, target, other) for other in targets)
    }


def _reach(imports: Imports, name: str) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        fresh = imports.get(waiting.pop(), set()) - reached
        reached |= fresh
        waiting += fresh
    return reached


def list_outer_imports(architecture: Architecture) -> Imports:
    """Return the imports between whole packages."""
    imports: Imports = {}
    for name, targets in architecture.imports.items():
        package = name.partition(".")[0]
        imports.setdefault(package, set()).update(t.partition(".")[0] for t in targets)
    for package, targets in imports.items():
        targets.discard(package)
    return imports


def draw(root: Path = ROOT) -> str:
    """Return `docs/architecture.svg`."""
    architecture = read_architecture(root)
    imports = list_outer_imports(architecture)
    boxes: dict[str, Box] = {}
    parts: list[str] = []
    top, middle, below, base = _list_rows(architecture, imports)
    y = 24.0
    for name in top:
        inside = architecture.inner.get(name, [])
        height, texts = _draw_inside(architecture, name, inside, y)
        boxes[name] = Box(name, MARGIN, y, WIDTH - 2 * MARGIN, height)
        parts += [_draw_rectangle(boxes[name]), _draw_title(boxes[name]), *texts]
    y = max(box.bottom for box in boxes.values()) + BETWEEN
    width = (WIDTH - 2 * MARGIN - GAP * (len(middle) - 1)) / len(middle)
    lines = {name: _list_contents(root, architecture, name, width) for name in middle}
    height = TITLE + 12 + LINE * max(map(len, lines.values()))
    for number, name in enumerate(middle):
        x = MARGIN + number * (width + GAP)
        boxes[name] = Box(name, x, y, width, height, lines[name])
    y += height + BETWEEN
    for name in below:
        above = [boxes[n] for n in middle if name in imports.get(n, ())]
        left, right = above[0].x, above[-1].x + above[-1].width
        text = _list_contents(root, architecture, name, right - left)
        boxes[name] = Box(name, left, y, right - left, TITLE + 12 + LINE * len(text), text)
        y = boxes[name].bottom + BETWEEN
    for name in base:
        wide = WIDTH - 2 * MARGIN
        text = _list_contents(root, architecture, name, wide)
        boxes[name] = Box(name, MARGIN, y, wide, TITLE + 12 + LINE * len(text), text)
    for name in (*middle, *below, *base):
        parts += _draw_text_box(boxes[name])
    parts += [_draw_arrow(boxes[a], boxes[b]) for a, b in sorted(reduce_imports(imports))]
    return _draw_svg(parts, boxes[base[-1]].bottom + 24)


def _list_rows(architecture: Architecture, imports: Imports) -> tuple[list[str], ...]:
    """Return the rows of the picture; packages without a layer are at the end of the second row."""
    top, middle, *others, base = architecture.layers
    layered = {name for layer in architecture.layers for name in layer}
    apart = sorted({name for name in imports if name not in layered})
    below = [name for layer in others for name in layer]
    users = [name for name in middle if set(below) & imports.get(name, set())]
    middle = [*users, *(name for name in middle if name not in users), *apart]
    return top, middle, below, base


def _draw_inside(
    architecture: Architecture, package: str, layers: Layers, y: float
) -> tuple[float, list[str]]:
    """Return the height of a package with its own layers, and the shapes inside it."""
    layered = {name for layer in layers for name in layer}
    apart = sorted(
        name
        for name in architecture.imports
        if name.startswith(f"{package}.") and name not in layered and name.count(".") == 1
        and name != f"{package}.__init__"
    )  # fmt: skip
    left, gap, height = MARGIN + 16, 30, 34
    side = 200 if apart else 0
    wide = WIDTH - 2 * left - side
    boxes: dict[str, Box] = {}
    start = y + TITLE + 14
    for number, layer in enumerate(layers):
        width = (wide - GAP * (len(layer) - 1)) / len(layer)
        for place, name in enumerate(layer):
            x = left + place * (width + GAP)
            boxes[name] = Box(name, x, start + number * (height + gap), width, height)
    total = len(layers) * (height + gap) - gap
    parts = [
        p for box in boxes.values() for p in (_draw_rectangle(box, "card"), _draw_title(box, 22))
    ]
    inside = {n: architecture.imports.get(n, set()) & layered for n in layered}
    for a, b in sorted(reduce_imports(inside)):
        parts.append(_draw_arrow(boxes[a], boxes[b]))
    for number, name in enumerate(apart):
        box = Box(name, left + wide + GAP, start + number * 60, side - GAP, total)
        parts += [_draw_rectangle(box, "card"), _draw_title(box, 22)]
        middle = box.x + box.width / 2
        parts.append(_draw_text(middle, box.y + 44, "in no layer"))
    return TITLE + 14 + total + 16, parts


def _list_contents(
    root: Path, architecture: Architecture, package: str, width: float
) -> tuple[str, ...]:
    """Return lines with the folders of a package, and the third parties that few may import."""
    code = {path for kind in ("*.py", "*.sql") for path in (root / package).glob(f"*/{kind}")}
    lines = [*_wrap(sorted({path.parent.name for path in code}), width)]
    outside = sorted(architecture.restricted.get(package, ()))
    if outside:
        lines += _wrap([f"imports {outside[0]}", *outside[1:]], width)
    return tuple(lines)


def _wrap(words: Iterable[str], width: float) -> Iterator[str]:
    line = ""
    for word in words:
        longer = f"{line}, {word}" if line else word
        if len(longer) * LETTER > width - 16:
            yield f"{line},"
            longer = word
        line = longer
    if line:
        yield line


def _draw_text_box(box: Box) -> list[str]:
    middle = box.x + box.width / 2
    lines = [
        _draw_text(middle, box.y + TITLE + 18 + number * LINE, line)
        for number, line in enumerate(box.lines)
    ]
    return [_draw_rectangle(box), _draw_title(box), *lines]


def _draw_rectangle(box: Box, kind: str = "box") -> str:
    size = f'x="{box.x:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}"'
    return f'<rect class="{kind}" {size} rx="8"/>'


def _draw_title(box: Box, down: float = TITLE) -> str:
    name = box.name.rpartition(".")[2]
    return _draw_text(box.x + box.width / 2, box.y + down, name, "ink")


def _draw_text(x: float, y: float, text: str, kind: str = "soft") -> str:
    font = 'font-size="15" font-weight="600"' if kind == "ink" else 'font-size="12.5"'
    return f'<text class="{kind}" x="{x:.0f}" y="{y:.0f}" {font}>{escape(text)}</text>'


def _draw_arrow(upper: Box, lower: Box) -> str:
    """Return an arrow from a package down to one that it imports, or across to a neighbour."""
    if abs(upper.y - lower.y) < 1:
        y = upper.y + upper.height / 2
        right = upper.x < lower.x
        start, end = (upper.x + upper.width, lower.x) if right else (upper.x, lower.x + lower.width)
        tip = -6 if right else 6
        line, head = f"M{start:.0f},{y:.0f} H{end:.0f}", f"M{end:.0f},{y:.0f} l{tip},-4 v8 z"
    else:
        left = max(upper.x, lower.x)
        right_end = min(upper.x + upper.width, lower.x + lower.width)
        x = (left + right_end) / 2
        aside = left - right_end if left > right_end else 0
        start, end = (x + aside, x - aside) if upper.x > lower.x else (x - aside, x + aside)
        if not aside:
            start = end = x
        line = f"M{start:.0f},{upper.bottom:.0f} L{end:.0f},{lower.y - 6:.0f}"
        head = f"M{end:.0f},{lower.y:.0f} l-5,-9 h10 z"
    return f'<path class="wire" d="{line}"/><path class="head" d="{head}"/>'


def _draw_svg(parts: list[str], height: float) -> str:
    font = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"
    body = "\n".join(f"  {part}" for part in parts)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img" \
aria-labelledby="t d" font-family="{font}" text-anchor="middle">
  <title id="t">Fallow's packages and what they import</title>
  <desc id="d">Every arrow is an import, and every arrow runs down or to a neighbour.</desc>
  <style>
{STYLE}  </style>
  <rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1:.0f}" rx="12"/>
{body}
</svg>
"""


def render_page(written: str, root: Path = ROOT) -> str:
    """Return `docs/architecture.md` with the tables of imports as the code has them."""
    architecture = read_architecture(root)
    imports = list_outer_imports(architecture)
    lines = ["| package | imports |", "|---|---|"]
    rows = {**imports, **{n: t for n, t in architecture.imports.items() if "." in n}}
    for name in sorted(rows):
        if not name.endswith(".__init__"):
            targets = ", ".join(f"`{target}`" for target in sorted(rows[name]))
            lines.append(f"| `{name}` | {targets or 'nothing of ours'} |")
    lines += ["", "`make lint` checks:", ""]
    lines += [f"- {contract}" for contract in architecture.contracts]
    before, _, rest = written.partition(HEAD)
    body = "\n".join(lines)
    return f"{before}{HEAD}\n{body}\n{TAIL}{rest.partition(TAIL)[2]}"


def main(folder: str) -> None:
    """Write the picture and the page's tables into a folder."""
    Path(folder, "architecture.svg").write_text(draw(), encoding="utf-8")
    path = Path(folder, "architecture.md")
    path.write_text(render_page(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
