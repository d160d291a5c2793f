"""Answer a what-if of the pages in a process of its own, with a deadline: pages stay quick."""

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from capacity.replay.answer import (
    answer_what_if,
    build_team_rows,
    describe_difference,
    describe_dollars,
    describe_what_if,
)
from capacity.replay.changes import parse_changes
from dashboards.what_if_runs import WhatIfQuestion
from fallow.errors import FallowError, TemporaryError
from fallow.settings import Settings
from warehouse.lake import Warehouse

DEADLINE_S = 120.0
"""How long an answer may take; the process is ended then."""
NICE = 10
"""Pages and the service go first."""

Reply = tuple[dict[str, Any] | None, str, str | None]
"""The body of `fallow.what-if/v1`, or a message and its hint."""


def answer_beside(
    settings: Settings,
    question: WhatIfQuestion,
    *,
    deadline_s: float = DEADLINE_S,
    answer: Callable[[Settings, WhatIfQuestion], dict[str, Any]] | None = None,
) -> Mapping[str, Any]:
    """Return the body of `fallow.what-if/v1` with the sentences `difference` and `dollar_text`.

    `answer`: what the process calls instead of `answer_question`.

    Raises:
        FallowError: the question names what the site does not have.
        TemporaryError: it took longer than the deadline, or its process was killed.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(
        target=_run, args=(sender, answer or answer_question, settings, question), daemon=True
    )
    process.start()
    sender.close()
    command = " ".join(question.words)
    try:
        if not receiver.poll(deadline_s):
            raise TemporaryError(
                f"the replay takes more than {deadline_s:g} s and was ended",
                hint=f"choose a shorter window, or run it in a terminal: {command}",
            )
        reply: Reply = receiver.recv()
    except EOFError as error:
        raise TemporaryError(
            "the process of the replay ended without an answer",
            hint=f"it may lack memory: choose a shorter window, or run {command}",
        ) from error
    finally:
        process.kill()
        process.join()
        receiver.close()
    body, message, hint = reply
    if body is None:
        raise FallowError(message, hint=hint)
    return body


def answer_question(settings: Settings, question: WhatIfQuestion) -> dict[str, Any]:
    """Return the answer of a question in plain types; it reads only."""
    options = {"quota": (), "pool": (), "priority": ()} | {
        question.option: (f"{question.name}={question.number}",)
    }
    changes = parse_changes(options["quota"], options["pool"], options["priority"])
    with Warehouse.open(settings) as warehouse:
        result = answer_what_if(warehouse, question.window, changes, question.cluster)
    body = {
        **describe_what_if(result),
        "what-if": build_team_rows(result),
        "difference": describe_difference(result),
        "dollar_text": describe_dollars(result.dollars),
    }
    plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(body))
    return plain


def _run(
    sender: Connection,
    answer: Callable[[Settings, WhatIfQuestion], dict[str, Any]],
    settings: Settings,
    question: WhatIfQuestion,
) -> None:
    os.nice(NICE)
    try:
        reply: Reply = (answer(settings, question), "", None)
    except FallowError as error:
        reply = (None, error.message, error.hint)
    sender.send(reply)
