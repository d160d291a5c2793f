"""Plain manifests, rendered from the Helm chart by Helm's own engine.

    python -m tools.manifests deploy

`deploy/helm/examples/NAME.yaml` are values, `deploy/manifests/NAME.yaml` the manifests of them. A
test keeps the two equal. Needs the dependency group `chart`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fallow.errors import UsageError

RELEASE = NAMESPACE = "fallow"
ORDER = (
    "Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
    "ConfigMap", "PersistentVolumeClaim", "Service", "NetworkPolicy", "StatefulSet",
)  # fmt: skip
"""Kinds that are created first; other kinds come last."""

HELMS = ("app.kubernetes.io/managed-by", "helm.sh/chart", "helm.sh/resource-policy")


def render_chart(
    chart: Path, values: Mapping[str, Any], *, release: str = RELEASE
) -> dict[str, str]:
    """Return the chart's manifests for some values, by template.

    Raises:
        UsageError: Helm's engine is not installed, or the chart refuses the values.
    """
    try:
        import helm_python as helm  # noqa: PLC0415  (75 MB that only maintainers need)
    except ImportError as error:
        raise UsageError(
            "Helm's engine is not installed",
            hint="uv pip install --require-hashes -r deploy/helm/tools.lock",
        ) from error
    try:
        with helm.Chart.load(str(chart)) as loaded:
            loaded.validate_schema(dict(values))
            templates: dict[str, str] = loaded.render(
                dict(values), name=release, namespace=NAMESPACE
            )
    except helm.HelmError as error:
        raise UsageError(f"the chart refuses these values: {error}") from error
    return templates


def list_objects(templates: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the objects of a rendering, in the order of their creation."""
    texts = [text for name, text in templates.items() if name.endswith(".yaml")]
    documents = [document for text in texts for document in yaml.safe_load_all(text) if document]
    rank = {kind: place for place, kind in enumerate(ORDER)}
    last = len(ORDER)

    def place(document: dict[str, Any]) -> tuple[int, str, str, str]:
        metadata = document["metadata"]
        kind = document["kind"]
        return rank.get(kind, last), kind, metadata.get("namespace", ""), metadata["name"]

    return sorted(documents, key=place)


def render_page(chart: Path, values: Path) -> str:
    """Return the manifests for a file of values, with their namespace."""
    chart_values = yaml.safe_load(values.read_text(encoding="utf-8"))
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    space = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": level},
    }
    every = [space, *list_objects(render_chart(chart, chart_values))]
    for manifest in every:
        _drop_helm_marks(manifest["metadata"])
    head = f"# Rendered by `python -m tools.manifests deploy` from helm/examples/{values.name}.\n"
    dumped = yaml.dump_all(every, Dumper=_Blocks, sort_keys=False, explicit_start=True, width=120)
    return head + dumped


class _Blocks(yaml.SafeDumper):
    """Writes texts of several lines as block text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write repeated values in full instead of an alias."""
        return data is not None


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Blocks.add_representer(str, _represent_text)


def _drop_helm_marks(metadata: dict[str, Any]) -> None:
    """Remove what only a Helm release has."""
    for marks in ("labels", "annotations"):
        left = {k: v for k, v in metadata.pop(marks, {}).items() if k not in HELMS}
        if left:
            metadata[marks] = left


def render_pages(deploy: Path) -> dict[str, str]:
    """Return the files of `deploy/manifests` by name."""
    chart = deploy / "helm" / "fallow"
    return {
        example.name: render_page(chart, example)
        for example in sorted((deploy / "helm" / "examples").glob("*.yaml"))
    }


def main(folder: str) -> None:
    """Write `manifests/` within a folder."""
    target = Path(folder, "manifests")
    target.mkdir(exist_ok=True)
    for name, text in render_pages(Path(folder)).items():
        (target / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
