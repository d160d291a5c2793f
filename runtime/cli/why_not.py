"""`fallow why-not`: why a workload is not acted upon, by the last plan or judged anew."""

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.options import CommandRun, Output
from runtime.operations.acting.stored_answers import describe_stored_answer, read_stored_answer

Policies = Annotated[
    list[Path] | None,
    typer.Option("--policies", metavar="FILE", help="files and folders [actions.policies]"),
]
At = Annotated[
    str | None, typer.Option("--at", help="as of a time, or so long ago, such as 2h [now]")
]


def why_not(
    run: CommandRun,
    workload: Annotated[
        str, typer.Argument(metavar="WORKLOAD", help="Kind/namespace/name, or a part of it")
    ],
    policies: Policies = None,
    *,
    policy: Annotated[str | None, typer.Option(help="only under this policy")] = None,
    at: At = None,
    fresh: Annotated[bool, typer.Option("--now", help="judge anew, not by the last plan")] = False,
    gates: Annotated[bool, typer.Option("--gates", help="every gate that refuses")] = False,
    every: Annotated[bool, typer.Option("--all", help="gates that are open, too")] = False,
) -> None:
    """Say why a workload is not acted upon, and what would help.

    `--gates`, `-o json` and every other option judge anew: each gate's answer under each policy.
    """
    anew = (fresh, gates, every, policies, policy, at, run.output is not Output.table)
    if not any(anew):
        with run.warehouse(run.settings()) as warehouse:
            answer = read_stored_answer(warehouse, workload, run.options.get("cluster"))
        if answer is not None:
            run.text("".join(f"{line}\n" for line in describe_stored_answer(answer)))
            return
    # What judges takes a second to load: the last plan's answer does without.
    judge = import_module("runtime.cli.plan").explain_anew
    judge(run, workload, policies, policy=policy, at=at, every=every)
