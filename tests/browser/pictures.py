"""Take a picture of every page, light and dark: `python -m tests.browser.pictures [VIEW ...]`.

They go to docs/pages as PNGs of few colours. A demo's week is simulated for them unless `--home`
names a warehouse.
"""

import argparse
import io
import shutil
import tempfile
from contextlib import ExitStack
from pathlib import Path

from PIL import Image, ImageColor
from playwright.sync_api import sync_playwright

from dashboards import app
from dashboards.charts import STATE_COLOURS
from runtime.experiments import demo_plants
from tests.browser.neighbours import alone, given
from tests.browser.serving import dashboard, free_port
from tests.browser.visiting import Visitor

PAGES = Path(__file__).resolve().parents[2] / "docs" / "pages"
DAYS, GPUS = 7, 64
WIDTH, LEAST, MOST = 1360, 800, 2400
"""Pixels; a page that is longer is cut."""
LARGEST = 180_000
"""Bytes of a picture; fewer colours make it smaller."""
HEIGHT = "document.querySelector('[data-testid=stMain]').scrollHeight"
CHOSEN = {
    "timeline": {"workload": "team-search/Deployment/forgotten-1"},
    "mine": {"owner": "vision"},
}
"""What somebody chose on pages that ask first."""
DRAWN_MS = 1500
"""Charts that came into sight take a moment to be drawn at their width."""


def main() -> None:
    """Take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("views", nargs="*", metavar="VIEW", help="all, unless some are named")
    parser.add_argument("--home", type=Path, help="folder of a warehouse")
    parser.add_argument("--window", default="7d")
    parser.add_argument("--out", type=Path, default=PAGES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        home = options.home or folder / "home"
        result: dict[str, object] = {"home": str(home), "cluster": demo_plants.CLUSTER}
        if options.home is None:
            result = given(alone(home, days=DAYS, gpus=GPUS))
        url = stack.enter_context(dashboard(folder, result, free_port()))
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            with Visitor(browser, url, color_scheme=scheme) as visitor:
                for view in options.views or app.list_names():
                    name = f"{app.build_url_path(view)}-{scheme}.png"
                    (options.out / name).write_bytes(taken(visitor, view, options.window))
        browser.close()


def taken(visitor: Visitor, view: str, window: str) -> bytes:
    """Return the picture of a whole page."""
    place = "" if view == app.list_names()[0] else app.build_url_path(view)
    visitor.page.set_viewport_size({"width": WIDTH, "height": LEAST})
    page = visitor.go(place, window=window, **CHOSEN.get(view, {}))
    height = min(MOST, max(LEAST, int(page.evaluate(HEIGHT))))
    page.set_viewport_size({"width": WIDTH, "height": height})
    visitor.arrive()
    page.wait_for_timeout(DRAWN_MS)
    return few_colours(page.screenshot())


def few_colours(png: bytes) -> bytes:
    """Return a picture in as many colours as its size allows."""
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    made = png
    for colours in (128, 64, 32, 16):
        out = io.BytesIO()
        palette = build_palette(picture, colours)
        reduced = picture.quantize(palette=palette, dither=Image.Dither.NONE)
        reduced.save(out, "PNG", optimize=True)
        made = out.getvalue()
        if len(made) <= LARGEST:
            break
    return made


def build_palette(picture: Image.Image, colours: int) -> Image.Image:
    """Return a palette that has each state's colour: a legend is too small to keep its own."""
    states = [ImageColor.getrgb(colour) for colour in STATE_COLOURS.values()]
    common = picture.quantize(colours - len(states), dither=Image.Dither.NONE).getpalette() or []
    values = [*common[: 3 * (colours - len(states))], *(part for rgb in states for part in rgb)]
    palette = Image.new("P", (1, 1))
    palette.putpalette(values)
    return palette


if __name__ == "__main__":
    main()
