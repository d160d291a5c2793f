"""Build the findings of suspended jobs that can run again."""

from analyzers.suspended.judge import ResumeVerdict
from capacity.queue.exclusions import ENDED_EXCLUSION
from fallow.models import Finding, FindingKey, Recommendation, Subject
from fallow.window import Window

ANALYZER, KIND = "suspended", "suspended_job"
RESUME = "resume"


def build_finding(verdict: ResumeVerdict, window: Window) -> Finding:
    """Return the finding of a suspended job that can run again; it frees no hours."""
    subject, action = build_subject(verdict), verdict.suspension.action
    since = find_window(verdict, window)
    nodes, ended = ", ".join(verdict.nodes), verdict.ended_exclusion
    again = f"; {', '.join(ended.nodes)} is excluded no more: it has other GPUs" if ended else ""
    return FindingKey(ANALYZER, KIND, subject, since).build(
        evidence="confirmed",
        confidence=0.9,
        details={
            "why": verdict.reason,
            "action": action.id,
            "policy": action.decision.policy,
            "gpus": verdict.gpus,
            "nodes": list(verdict.nodes),
            ENDED_EXCLUSION: None
            if ended is None
            else {"was": ended.was, "becomes": ended.becomes},
        },
        recommendations=(
            Recommendation(
                verb=RESUME,
                target=f"{subject.workload_kind}/{subject.namespace}/{subject.workload}",
                why=f"Fallow suspended it; {verdict.reason}, and its pods fit on {nodes}{again}",
                reversible=True,
                undo="suspend it again",
                caution="it goes on from its last checkpoint; what it holds is paid again",
            ),
        ),
    )


def build_subject(verdict: ResumeVerdict) -> Subject:
    """Return the job, with the nodes of its placement."""
    cluster, namespace, kind, name = verdict.suspension.key
    facts = verdict.suspension.facts
    return Subject(
        cluster,
        namespace,
        kind,
        name,
        team=facts.owner if facts else None,
        nodes=verdict.nodes,
        models=facts.models if facts else (),
    )


def find_window(verdict: ResumeVerdict, window: Window) -> Window:
    """Return the time since the stop."""
    return Window(verdict.suspension.action.at, window.end)
