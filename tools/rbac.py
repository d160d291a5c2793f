"""Generate the roles that Fallow needs in a cluster from the code that reads and acts there.

    python -m tools.rbac deploy/rbac

`reader.yaml` is all that collecting needs; `actor.yaml` has one small role per executor, to be
bound in the namespaces that policies allow and nowhere else. A test keeps the files equal to this.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from actions import executors
from actions.rights import build_manifests, build_rules
from runtime.operations.acting.access_review import list_reader_rights

HEAD = "# Written by `python -m tools.rbac deploy/rbac` from what the code declares.\n"


def render_pages() -> dict[str, str]:
    """Return the files of `deploy/rbac` by name."""
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "fallow-reader", "labels": {"app.kubernetes.io/part-of": "fallow"}},
        "rules": build_rules(list_reader_rights()),
    }
    return {
        "reader.yaml": _render_page([reader]),
        "actor.yaml": _render_page(build_manifests(executors.load_executors())),
    }


def _render_page(documents: list[dict[str, Any]]) -> str:
    return HEAD + yaml.safe_dump_all(documents, sort_keys=False, explicit_start=True)


def main(folder: str) -> None:
    """Write the files into a folder."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for name, text in render_pages().items():
        Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
