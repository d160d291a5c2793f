"""The image's recipe: every package of ours, locked ones of others, nobody's root."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RECIPE = (ROOT / "deploy" / "container" / "Containerfile").read_text()
IMAGE_LOCK = ROOT / "deploy/container/requirements.lock"
RAY_LOCK = ROOT / "deploy/container/requirements.ray.lock"
LOCKS = (IMAGE_LOCK, RAY_LOCK, ROOT / "deploy/helm/tools.lock")
PIN = re.compile(r"^([a-z0-9._-]+)==(\S+)( ; [^\\]+)?", re.MULTILINE)


def pins(path: Path) -> dict[tuple[str, str], str]:
    return {(n, m.strip(" ;")): v for n, v, m in PIN.findall(path.read_text())}


def test_it_holds_every_package_of_ours_and_sends_the_builder_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    ours = set(project["tool"]["uv"]["build-backend"]["module-name"])
    copied = set(re.findall(r"^COPY (\w+) \1$", RECIPE, re.MULTILINE))
    assert copied == ours
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    sent = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert "*" in ignored
    assert sent == ours | {
        "pyproject.toml", "README.md", "LICENSE", "deploy/container/requirements.lock",
        "deploy/container/requirements.ray.lock",
    }  # fmt: skip


def test_the_image_for_ray_has_the_same_packages_and_ray() -> None:
    assert "ARG LOCK=requirements.lock\nCOPY deploy/container/${LOCK} requirements.lock" in RECIPE
    assert "--build-arg LOCK=requirements.ray.lock" in RECIPE
    with_ray, without = pins(RAY_LOCK), pins(IMAGE_LOCK)
    assert without.items() <= with_ray.items(), "run make lock"
    assert {name for name, _ in with_ray.keys() - without.keys()} == {
        "filelock", "grpcio", "msgpack", "ray",
    }  # fmt: skip
    chart = (ROOT / "deploy/helm/fallow/values.yaml").read_text()
    (version,) = {v for (name, _), v in with_ray.items() if name == "ray"}
    assert f'version: "{version}"' in chart, "the RayCluster's version is the image's"


def test_it_runs_as_somebody_with_one_volume() -> None:
    last = RECIPE.split("\nFROM ")[-1]
    assert re.findall(r"^USER (.+)$", RECIPE, re.MULTILINE) == ["65532:65532"]
    assert re.findall(r"^VOLUME (.+)$", last, re.MULTILINE) == ["/var/lib/fallow"]
    assert "HEALTHCHECK" not in RECIPE
    assert re.findall(r"^RUN (.*(?:pip|apt).*)$", last, re.MULTILINE) == []
    assert "fallow up" not in last  # the words are apart: no shell stands between
    assert 'ENTRYPOINT ["fallow"]' in last


def test_packages_come_by_hash_and_nobody_is_named_who_sends_them() -> None:
    assert "--require-hashes --only-binary :all: -r requirements.lock" in RECIPE
    assert "--no-deps --no-build-isolation" in RECIPE
    for text in (RECIPE, *(path.read_text() for path in LOCKS)):
        assert "://" not in text
        assert "index-url" not in text
    for path in LOCKS:
        held = path.read_text().replace("\\\n", " ").splitlines()
        assert [line for line in held if "==" in line and "--hash=sha256:" not in line] == []


def test_locks_agree_about_versions() -> None:
    whole = pins(ROOT / "requirements.lock")
    for path in LOCKS:
        held = pins(path)
        shared = held.keys() & whole.keys()
        differing = {k: (held[k], whole[k]) for k in shared if held[k] != whole[k]}
        assert not differing, f"{path.name}: run make lock"
        assert len(shared) > 5
