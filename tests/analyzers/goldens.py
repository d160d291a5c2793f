"""Golden folders: what an analyzer finds at a site stands beside it as a document."""

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fallow.models import Finding
from runtime.operations.analysis.findings import document


def agree(folder: Path, found: Iterable[Finding], **more: Any) -> None:
    """Compare findings with a folder's `findings.json`; FALLOW_GOLDEN=write writes it anew."""
    made = {"schema": "fallow.findings/v1", "findings": [document(f) for f in found], **more}
    path = folder / "findings.json"
    if os.environ.get("FALLOW_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made, indent=2) + "\n")
    assert made == json.loads(path.read_text())
