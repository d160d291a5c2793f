"""The architecture page and its picture are what the code says, and the picture shows all of it."""

import re
from pathlib import Path
from xml.etree import ElementTree as ET

from tools import architecture

DOCS = Path(__file__).resolve().parents[1] / "docs"
REFRESH = "run: python -m tools.architecture docs"
SVG = "{http://www.w3.org/2000/svg}"


def test_the_page_and_the_picture_are_what_the_code_says() -> None:
    assert (DOCS / "architecture.svg").read_text(encoding="utf-8") == architecture.draw(), REFRESH
    written = (DOCS / "architecture.md").read_text(encoding="utf-8")
    assert written == architecture.render_page(written), REFRESH


def test_every_package_is_in_the_picture_and_every_arrow_is_an_import() -> None:
    code = architecture.read_architecture()
    picture = ET.fromstring(architecture.draw())
    titles = {t.text for t in picture.iter(f"{SVG}text") if t.get("font-weight") == "600"}
    packages = {name.partition(".")[0] for name in code.imports}
    assert {"fallow", "warehouse", "runtime", "simulator"} <= packages <= titles
    assert {"cli", "service", "operations", "rendering"} <= titles
    imports = architecture.list_outer_imports(code)
    assert ("warehouse", "fallow") in architecture.reduce_imports(imports)
    assert ("actions", "fallow") not in architecture.reduce_imports(imports)


def test_arrows_between_packages_run_down() -> None:
    picture = ET.fromstring(architecture.draw())
    lines = [p.get("d", "") for p in picture.iter(f"{SVG}path") if p.get("class") == "wire"]
    assert len(lines) > 10
    for line in lines:
        down = re.fullmatch(r"M\d+,(\d+) L\d+,(\d+)", line)
        assert down is None or int(down[1]) < int(down[2])


def test_an_import_that_others_imply_has_no_arrow_and_a_circle_implies_none() -> None:
    imports = {
        "top": {"left", "right", "base"},
        "left": {"right", "base"},
        "right": {"left", "base"},
    }
    assert architecture.reduce_imports(imports) == {
        ("top", "left"), ("top", "right"), ("left", "right"), ("right", "left"),
        ("left", "base"), ("right", "base"),
    }  # fmt: skip


def test_imports_inside_functions_count() -> None:
    text = "def f():\n    from warehouse.lake import Warehouse\n    import fallow.window\n"
    assert set(architecture.list_imported_modules(text)) == {
        "warehouse.lake.Warehouse", "fallow.window",
    }  # fmt: skip
