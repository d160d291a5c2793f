"""Generate the optional admission policies of `deploy/admission` from the table of variables.

    python -m tools.admission deploy/admission

A test keeps the file equal to this.
"""

import sys
from pathlib import Path

import yaml

from actions.hints.admission import API, LABEL, build_manifests

HEAD = f"""\
# Written by `python -m tools.admission deploy/admission` from
# actions/hints/admission.csv.
# Optional. For pods that bear the label {LABEL}, and no others. Needs {API}.
"""


def render_page() -> str:
    """Return `deploy/admission/precision.yaml`."""
    return HEAD + yaml.safe_dump_all(
        build_manifests(), sort_keys=False, explicit_start=True, width=1000
    )


def main(folder: str) -> None:
    """Write the file into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    Path(folder, "precision.yaml").write_text(render_page(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
