"""`fallow policy`: check policies offline, list them, show one whole, and their schema."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from actions.journal import JournalState
from actions.journal import trust as journal
from actions.policy import keys
from actions.policy.parser import parse_policies, read_policies
from actions.policy.shipped import get_folder, write_out
from fallow.errors import UsageError
from fallow.window import format_duration
from runtime.cli.options import CommandRun, Output
from runtime.operations.acting import live_actor, plans
from runtime.operations.acting.admission_page import write_page
from runtime.operations.acting.plan_rows import describe_policy
from runtime.operations.acting.plans import explain_missing_folder
from runtime.rendering.tables import document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from actions.journal.trust import TrustState
    from actions.policy.model import Policy
    from fallow.settings import Settings

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="files and folders [actions.policies]"),
]


def check(run: CommandRun, files: Files = None) -> int:
    """Check policies offline: one line per error, with file, line, key and what is legal."""
    settings = run.settings()
    policies, problems = parse_policies(
        _list_paths(run, files, settings), interval=_sample_interval(settings)
    )
    if run.output is Output.json:
        run.data(
            [_build_row(policy) for policy in policies],
            noun="policies",
            problems=[msgspec.to_builtins(problem) for problem in problems],
        )
    elif not problems:
        run.data([_build_row(policy) for policy in policies], noun="policies")
    for problem in problems:
        run.say(f"fallow: {problem}")
    return 2 if problems else 0


def list_policies(run: CommandRun, files: Files = None) -> None:
    """List the policies, where each may act and what it would do in the end."""
    policies, settings = _read(run, files), run.settings()
    standings = plans.read_standings(settings, policies)
    shipped = _is_shipped(files, settings)
    rows = [
        _build_row(policy) | (_SHIPPED if shipped else _trust(policy, standings.get(policy.name)))
        for policy in policies
    ]
    run.data(rows, noun="policies", shipped=shipped)


def show(
    run: CommandRun,
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the policy")],
    files: Files = None,
) -> None:
    """Show a policy with everything that holds where nothing is said."""
    policy = _find_policy(_read(run, files), name)
    body = {"fingerprint": policy.fingerprint, **msgspec.to_builtins(policy)}
    if run.output is Output.json:
        run.text(document("policy", body))
        return
    parts = _describe(policy) if run.output is Output.table else dict(_flatten(body))
    run.data([{"key": key, "value": value} for key, value in parts.items()], noun="policy")


def _describe(policy: "Policy") -> dict[str, str]:
    """Return a policy in words, a part per line; `-o csv` has every key."""
    return {
        "name": policy.name,
        "description": policy.description,
        "mode": policy.mode,
        **describe_policy(policy),
        "at once": f"{policy.concurrent} actions",
        "blackouts": ", ".join(blackout.name for blackout in policy.blackouts) or "none",
        "only if": "a pending workload is admitted on the freed GPUs"
        if policy.on_pressure
        else "a pending workload is admitted, or a node becomes empty"
        if policy.on_benefit
        else "always",
        "minimum age": format_duration(policy.min_age.total_seconds()),
        "cool-down": format_duration(policy.cool_down.total_seconds()),
        "reversals": f"at most {policy.reversals.rate:.0%} within "
        f"{format_duration(policy.reversals.within.total_seconds())}",
        "aborts above": f"{policy.max_resources} of the fleet's cases at once"
        if policy.max_resources.share
        else f"{policy.max_resources} cases at once",
        "source": policy.source,
        "fingerprint": policy.fingerprint,
    }


def init(
    run: CommandRun,
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="where to [actions.policies]")
    ] = None,
    *,
    force: Annotated[
        bool, typer.Option("--force", help="overwrite what a site changed in them")
    ] = False,
) -> None:
    """Write the policies that come with Fallow into a folder, to be read and changed.

    None of them acts as it stands: list namespaces in `allow.namespaces` first.
    """
    target = folder or run.own_settings("fallow policy init").actions.policies
    written = write_out(target, force=force)
    run.data([{"file": str(path)} for path in written], noun="files")
    run.say(f"{len(written)} files written; fallow policy check {target} reads them")


def trust(
    run: CommandRun,
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the policy")],
    files: Files = None,
    *,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="why, for the journal and every plan")
    ] = "",
    revoke: Annotated[
        bool, typer.Option("--revoke", help="take the trust back, however it came to be")
    ] = False,
    by: Annotated[
        str | None, typer.Option("--by", metavar="NAME", help="who trusts it [the system user]")
    ] = None,
) -> None:
    """Let a policy act without a back-test that proves it: by hand, with a reason, for the record.

    It holds for this text only: a changed policy has to be trusted again. Every plan says who
    trusts it and why, and it still demotes itself when owners take back too much.
    """
    settings = run.settings()
    if revoke:
        with live_actor.open_journal(settings, run.now, actor=by or "") as opened:
            journal.revoke(JournalState(opened), name, opened.actor, reason)
        run.say(f"policy {name} is trusted no more: it goes no further than a notice")
        return
    if _is_shipped(files, settings):
        raise _explain_missing_folder(settings)
    policy = _find_policy(_read(run, files), name)
    with live_actor.open_journal(settings, run.now, actor=by or "") as opened:
        record = JournalState(opened).catch_up()
        standing = journal.trust_by_hand(record, policy, opened.actor, reason)
    run.say(f"policy {name} ({policy.fingerprint}) is {standing.text}")
    if not (policy.allow.namespaces or policy.allow.cluster_objects):
        run.say("it may act nowhere yet: list allow.namespaces, and trust the changed text again")
    run.say(f"until its text changes, or `fallow policy trust {name} --revoke`")


def schema(run: CommandRun) -> None:
    """Print the JSON schema of a policy, for editors."""
    run.text(json.dumps(keys.build_schema(), indent=2))


def admission(
    run: CommandRun,
    files: Files = None,
    *,
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            metavar="NAMESPACE/NAME",
            help="service account of the actor; repeat it [those of the chart]",
        ),
    ] = None,
) -> None:
    """Print admission policies: the actor may write only the objects that policies name.

    One ValidatingAdmissionPolicy with its binding for each acting role, for `kubectl apply -f -`.
    They refuse every other write of the actor's account, and nobody else's. What the undo of
    actions in force writes stays allowed. Write them again after every change of a policy.
    """
    settings = run.settings()
    policies = _read(run, files)
    standing = plans.read_standing_actions(settings, run.now())
    run.text(write_page(settings, policies, standing, account or ()))


def _read(run: CommandRun, files: list[Path] | None) -> "tuple[Policy, ...]":
    settings = run.settings()
    return read_policies(_list_paths(run, files, settings), interval=_sample_interval(settings))


def _find_policy(policies: "Sequence[Policy]", name: str) -> "Policy":
    named = {policy.name: policy for policy in policies}
    if name not in named:
        raise UsageError(f"no policy called {name!r}", hint=f"there are: {', '.join(named)}")
    return named[name]


def _list_paths(run: CommandRun, files: list[Path] | None, settings: "Settings") -> list[Path]:
    """Return the named paths, else the site's folder, or without one the shipped policies."""
    if not _is_shipped(files, settings):
        return files or [settings.actions.policies]
    missing = _explain_missing_folder(settings)
    run.say(f"{missing.message}: these come with Fallow, nothing enforces them")
    run.say(f"hint: {missing.hint}")
    return [get_folder()]


def _is_shipped(files: list[Path] | None, settings: "Settings") -> bool:
    return not files and not settings.actions.policies.exists()


def _explain_missing_folder(settings: "Settings") -> "UsageError":
    return explain_missing_folder(settings)


def _sample_interval(settings: "Settings") -> "timedelta":
    return max(settings.service.collect_every, settings.exporters.interval)


def _build_row(policy: "Policy") -> dict[str, Any]:
    act = policy.stage("act")
    return {
        "policy": policy.name,
        "mode": policy.mode,
        "stages": " > ".join(stage.step for stage in policy.stages),
        "act": ", ".join(act.do) if act else "",
        "namespaces": ", ".join(policy.allow.namespaces) or "nowhere",
        "fingerprint": policy.fingerprint,
        "source": policy.source,
    }


_SHIPPED = {"trust": None, "why": "comes with Fallow: not enforced"}


def _trust(policy: "Policy", standing: "TrustState | None") -> dict[str, Any]:
    """Return whether a policy may act according to the journal, and why."""
    if policy.mode != "enforce":
        return {"trust": None, "why": "it only notifies"}
    if standing is None:
        return {"trust": "none", "why": "no back-test of it is in the journal"}
    return {
        "trust": {"": "none", "hand": "by hand"}.get(standing.how, standing.how),
        "why": standing.why,
    }


def _flatten(body: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(body, dict):
        parts = [(f"{prefix}.{key}".lstrip("."), value) for key, value in body.items()]
    elif isinstance(body, (list, tuple)) and any(isinstance(item, (dict, list)) for item in body):
        parts = [(f"{prefix}[{number}]", value) for number, value in enumerate(body)]
    else:
        return [(prefix, None if body in ([], (), "") else body)]
    return [leaf for key, value in parts for leaf in _flatten(value, key)]
