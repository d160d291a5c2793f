"""`fallow policy`: check policies offline, list them, show one whole, and their schema."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.cli.frame import Output, Run, command

if TYPE_CHECKING:
    from datetime import timedelta

    from actions.policy.model import Policy
    from fallow.settings import Settings

Files = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FILE]...", help="files and folders [actions.policies]"),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    group = typer.Typer(help="What may be done, how far and when not.", no_args_is_help=True)
    app.add_typer(group, name="policy")
    command(group, "check")(check)
    command(group, "list")(listed)
    command(group, "show")(show)
    command(group, "schema")(schema)


def check(run: Run, files: Files = None) -> int:
    """Check policies offline: one line per error, with file, line, key and what is legal."""
    from actions.policy.reading import look_at  # noqa: PLC0415

    settings = run.settings()
    policies, problems = look_at(_paths(files, settings), look=_look(settings))
    if run.output is Output.json:
        import msgspec  # noqa: PLC0415

        run.data(
            [_row(policy) for policy in policies],
            noun="policies",
            problems=[msgspec.to_builtins(problem) for problem in problems],
        )
    elif not problems:
        run.data([_row(policy) for policy in policies], noun="policies")
    for problem in problems:
        run.say(f"fallow: {problem}")
    return 2 if problems else 0


def listed(run: Run, files: Files = None) -> None:
    """List the policies, where each may act and what it would do in the end."""
    run.data([_row(policy) for policy in _read(run, files)], noun="policies")


def show(
    run: Run,
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the policy")],
    files: Files = None,
) -> None:
    """Show a policy with everything that holds where nothing is said."""
    import msgspec  # noqa: PLC0415

    from fallow.errors import UsageError  # noqa: PLC0415

    policies = {policy.name: policy for policy in _read(run, files)}
    if name not in policies:
        raise UsageError(f"no policy called {name!r}", hint=f"there are: {', '.join(policies)}")
    body = {
        "fingerprint": policies[name].fingerprint,
        **msgspec.to_builtins(policies[name]),
    }
    if run.output is Output.json:
        from runtime.output import document  # noqa: PLC0415

        run.text(document("policy", body))
        return
    run.data([{"key": key, "value": value} for key, value in _leaves(body)], noun="policy")


def schema(run: Run) -> None:
    """Print the JSON schema of a policy, for editors."""
    import json  # noqa: PLC0415

    from actions.policy.keys import schema  # noqa: PLC0415

    run.text(json.dumps(schema(), indent=2))


def _read(run: Run, files: list[Path] | None) -> "tuple[Policy, ...]":
    from actions.policy.reading import read  # noqa: PLC0415

    settings = run.settings()
    return read(_paths(files, settings), look=_look(settings))


def _paths(files: list[Path] | None, settings: "Settings") -> list[Path]:
    return files or [settings.actions.policies]


def _look(settings: "Settings") -> "timedelta":
    return max(settings.service.collect_every, settings.exporters.interval)


def _row(policy: "Policy") -> dict[str, Any]:
    act = policy.rung("act")
    return {
        "policy": policy.name,
        "mode": policy.mode,
        "ladder": " > ".join(rung.step for rung in policy.ladder),
        "act": ", ".join(act.do) if act else "",
        "namespaces": ", ".join(policy.allow.namespaces) or "nowhere",
        "fingerprint": policy.fingerprint,
        "source": policy.source,
    }


def _leaves(body: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(body, dict):
        parts = [(f"{prefix}.{key}".lstrip("."), value) for key, value in body.items()]
    elif isinstance(body, list) and any(isinstance(item, (dict, list)) for item in body):
        parts = [(f"{prefix}[{number}]", value) for number, value in enumerate(body)]
    else:
        return [(prefix, None if body in ([], "") else body)]
    return [leaf for key, value in parts for leaf in _leaves(value, key)]
