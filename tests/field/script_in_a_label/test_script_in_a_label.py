"""A script in a label is text in whatever a browser may render."""

import re

from tests.field.site import Site, list_lines

LABEL = "<script>alert(1)</script>"
LINK = "[pay](javascript:alert(1))"


def test_a_script_in_a_label_is_text(site: Site) -> None:
    lines = [
        *list_lines("GPU-0", "a", pod=LABEL, namespace=LINK, container="c"),
        *list_lines("GPU-1", "a", gpu=1, pod="<img src=x onerror=alert(1)>", namespace="n"),
    ]
    assert site.import_lines(*lines).code == 0
    for by in ("namespace", "workload", "pod"):
        shown = site.run("spend", "--by", by, "--window", "24h", "-o", "md").out
        # A backslash before it makes each a text in Markdown.
        assert not re.search(r"(?<!\\)(<script|<img|\]\(javascript)", shown)
