"""`fallow policy`: offline, one line per error, exit 2."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Fallow = Callable[..., Any]
SHIPPED = Path(__file__).parents[2] / "policies"
GOOD = "name: watch\nstages: [observe]\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "watch.yaml").write_text(GOOD)
    return tmp_path / "policies"


def test_good_policies_are_listed_and_the_exit_code_is_0(fallow: Fallow) -> None:
    for words in (["policy", "check"], ["policy", "list"], ["policy", "check", "policies"]):
        ran = fallow(*words, "-o", "json")
        assert ran.code == 0, ran.err
        document = json.loads(ran.out)
        assert document["schema"] == "fallow.policies/v1"
        assert [row["policy"] for row in document["policies"]] == ["watch"]
        assert document["policies"][0]["source"] == "policies/watch.yaml:1"


def test_every_error_is_one_line_and_the_exit_code_is_2(fallow: Fallow, folder: Path) -> None:
    (folder / "bad.yaml").write_text("name: B\nmod: x\nstages: [run]\n")
    ran = fallow("policy", "check")
    assert (ran.code, ran.out) == (2, "")
    lines = ran.err.splitlines()
    assert [line.split(": ")[1] for line in lines] == [
        "policies/bad.yaml:1",
        "policies/bad.yaml:2",
        "policies/bad.yaml:3",
    ]
    assert all(line.startswith("fallow: ") and "legal" in line for line in lines)
    result = fallow("policy", "check", "-o", "json")
    assert result.code == 2
    body = json.loads(result.out)
    assert [row["policy"] for row in body["policies"]] == ["watch"]
    assert [(p["file"], p["line"], p["key"]) for p in body["problems"]] == [
        ("policies/bad.yaml", 1, "name"),
        ("policies/bad.yaml", 2, "mod"),
        ("policies/bad.yaml", 3, "stages[0]"),
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["policy", "check", "gone.yaml"], "gone.yaml: cannot be read: no such file or directory"),
        (["policy", "list", "gone"], "gone: cannot be read"),
        (["policy", "show", "nope"], "no policy called 'nope'"),
    ],
)
def test_what_is_not_there_is_named(fallow: Fallow, words: list[str], said: str) -> None:
    ran = fallow(*words)
    assert ran.code == 2
    assert said in ran.err


def test_a_stranger_s_policy_cannot_drive_the_terminal(fallow: Fallow, folder: Path) -> None:
    (folder / "odd.yaml").write_text('"\\e[2J": 1\nstages: ["\\e[31m\\n"]\n')
    ran = fallow("policy", "check")
    assert ran.code == 2
    assert all(c.isprintable() or c == "\n" for c in ran.err)


def test_the_waits_of_a_policy_are_measured_by_the_site_s_own_looks(
    fallow: Fallow, folder: Path
) -> None:
    (folder / "watch.yaml").write_text(GOOD + "cool_down: 10m\n")
    assert fallow("policy", "check").code == 0
    Path("fallow.yaml").write_text("exporters: {interval: 5m}\n")
    ran = fallow("policy", "check")
    assert ran.code == 2
    assert "shorter than 3 evaluations of 5m; legal: 15m or more" in ran.err


def test_show_tells_what_holds_where_nothing_is_said(fallow: Fallow) -> None:
    document = json.loads(fallow("policy", "show", "watch", "-o", "json").out)
    assert document["schema"] == "fallow.policy/v1"
    assert (document["mode"], document["allow"]["namespaces"]) == ("notify", [])
    table = fallow("policy", "show", "watch").out
    assert "cool-down" in table


def test_the_schema_is_json(fallow: Fallow) -> None:
    document = json.loads(fallow("policy", "schema").out)
    assert document["required"] == ["name", "stages"]


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder of a site that has no policies yet."""
    here = tmp_path / "bare"
    here.mkdir()
    monkeypatch.chdir(here)
    return here


def test_a_site_without_policies_sees_the_shipped_ones_marked_as_such(
    fallow: Fallow, bare: Path
) -> None:
    listed = fallow("policy", "list", "-o", "json")
    assert listed.code == 0, listed.err
    document = json.loads(listed.out)
    assert document["shipped"] is True
    assert {row["policy"] for row in document["policies"]} >= {"idle-notebooks", "night-stops"}
    assert {row["why"] for row in document["policies"]} == {"comes with Fallow: not enforced"}
    assert "hint: fallow policy init policies" in listed.err
    assert fallow("policy", "check").code == 0
    assert fallow("policy", "show", "night-stops").code == 0
    assert not (bare / "policies").exists()


def test_what_needs_policies_of_the_site_says_how_to_get_some(fallow: Fallow, bare: Path) -> None:
    for words in (["plan"], ["policy", "trust", "idle-notebooks", "--reason", "because"]):
        ran = fallow(*words)
        assert ran.code == 2
        assert "there is no folder of policies at policies" in ran.err
        assert "hint: fallow policy init policies" in ran.err
    assert list(bare.iterdir()) == []


def test_init_writes_the_shipped_policies_once_and_overwrites_only_by_force(
    fallow: Fallow, bare: Path
) -> None:
    first = fallow("policy", "init", "rules", "-o", "json")
    assert first.code == 0, first.err
    names = {Path(row["file"]).name for row in json.loads(first.out)["files"]}
    assert names == {path.name for path in SHIPPED.glob("*.yaml")}
    for name in names:
        assert (bare / "rules" / name).read_bytes() == (SHIPPED / name).read_bytes()
    assert fallow("policy", "check", "rules").code == 0
    assert json.loads(fallow("policy", "init", "rules", "-o", "json").out)["files"] == []
    mine = bare / "rules" / "night-stops.yaml"
    mine.write_text("mine\n")
    (bare / "rules" / "idle-notebooks.yaml").unlink()
    refused = fallow("policy", "init", "rules")
    assert refused.code == 2
    assert "rules holds other texts of night-stops.yaml: nothing is written" in refused.err
    assert "hint: fallow policy init rules --force" in refused.err
    assert mine.read_text() == "mine\n"
    assert not (bare / "rules" / "idle-notebooks.yaml").exists()
    assert fallow("policy", "init", "rules", "--force").code == 0
    assert mine.read_bytes() == (SHIPPED / "night-stops.yaml").read_bytes()


def test_init_into_a_file_is_one_line_and_exit_2(fallow: Fallow, bare: Path) -> None:
    (bare / "file").write_text("")
    ran = fallow("policy", "init", "file")
    assert ran.code == 2
    assert "cannot be written" in ran.err


def test_admission_policies_are_printed_from_the_sites_policies(
    fallow: Fallow, folder: Path
) -> None:
    (folder / "notebooks.yaml").write_text(
        "name: notebooks\nmode: enforce\nallow: {namespaces: [research]}\n"
        "stages: [notify, grace: 24h, act: suspend]\nbudgets: [{workloads: 2, per: 1d}]\n"
    )
    ran = fallow("policy", "admission", "--account", "gpu/reclaimer")
    assert ran.code == 0, ran.err
    documents = [*yaml.safe_load_all(ran.out)]
    policies = {d["metadata"]["name"]: d for d in documents if "Binding" not in d["kind"]}
    notebook = policies["fallow-act-notebook"]
    (condition,) = notebook["spec"]["matchConditions"]
    assert condition["expression"] == (
        "request.userInfo.username in ['system:serviceaccount:gpu:reclaimer']"
    )
    (validation,) = notebook["spec"]["validations"]
    assert "variables.reasons" in validation["messageExpression"]
    reasons = {v["name"]: v["expression"] for v in notebook["spec"]["variables"]}["reasons"]
    assert (
        "not named by policies/notebooks.yaml:1; roles that have it: fallow-act-notebook" in reasons
    )
    assert policies["fallow-act-scale"]["spec"]["validations"][0]["expression"] == "false"
    assert notebook["metadata"]["annotations"]["fallow.dev/policies"].startswith("notebooks ")

    refused = fallow("policy", "admission", "--account", "reclaimer")
    assert (refused.code, refused.out) == (2, "")
    assert "legal: NAMESPACE/NAME" in refused.err
