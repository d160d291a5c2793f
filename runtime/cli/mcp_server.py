"""`fallow mcp`: spend, findings and verdicts for assistants, over the Model Context Protocol."""

from importlib import import_module
from importlib.util import find_spec

from fallow.errors import UsageError, advise_extra
from runtime.cli.options import CommandRun
from runtime.operations.answers.fleet_answers import FleetAnswers

OPTIONS = ("home", "config", "cluster")


def mcp(run: CommandRun) -> None:
    """Answer an assistant on stdin and stdout (MCP); it only reads.

    Tools: spend, findings, explain, why_not, queue, why_pending, incidents, what_if, idleness. The
    assistant starts this command.
    """
    if find_spec("mcp") is None:
        raise UsageError("the MCP server is not installed", hint=advise_extra("mcp"))
    options = {name: str(run.options[name]) for name in OPTIONS if run.options.get(name)}
    tools = import_module("runtime.operations.answers.assistant_tools")
    tools.serve(FleetAnswers(run.settings(), options, run.now))
