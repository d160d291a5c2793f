"""Write scopes as CEL, the expression language of Kubernetes admission.

An expression reads three variables of its policy: `write` (`UPDATE deployments.apps/scale`),
`space` (the namespace; empty for an object without one: CEL reserves the word) and `name`.
"""

import json
from collections.abc import Callable, Iterable, Mapping

from actions.admission.scopes import CREATE, Scope, Write, read_label_pointers
from actions.loop.annotate import PREFIX

VARIABLES = {
    "space": "has(request.namespace) ? request.namespace : ''",
    "name": "has(request.name) ? request.name : ''",
    "resource": (
        "request.resource.resource"
        " + (request.resource.group == '' ? '' : '.' + request.resource.group)"
        " + (has(request.subResource) && request.subResource != ''"
        " ? '/' + request.subResource : '')"
    ),
    "write": "request.operation + ' ' + variables.resource",
}
"""The variables of every policy, each after those that it reads."""
_EMPTY = {"annotations": "{}", "labels": "{}", "finalizers": "[]", "ownerReferences": "[]"}
ANNOTATION_VARIABLES = {
    "before": "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
    "after": "has(object.metadata.annotations) ? object.metadata.annotations : {}",
}
NOTHING = "[^\\x{0}-\\x{10ffff}]"
"""The pattern that matches no character."""
EVENT = "object.reason == 'Fallow' && object.metadata.name.startsWith('fallow.')"


def quote(text: str) -> str:
    """Return a text as a CEL literal."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1].replace('\\"', '"').replace("'", "\\'")
    return f"'{escaped}'"


def format_resource(group: str, resource: str) -> str:
    """Return a resource as the variable `resource` has it."""
    name, _, part = resource.partition("/")
    return name + (f".{group}" if group else "") + (f"/{part}" if part else "")


def format_write(write: Write) -> str:
    """Return a write as the variable `write` has it."""
    return f"{write.operation} {format_resource(write.group, write.resource)}"


def match_globs(value: str, globs: Iterable[str]) -> str:
    """Return the expression that is true where a text matches one of some globs."""
    globs = list(globs)
    exact = [glob for glob in globs if not any(c in glob for c in "*?[")]
    patterns = [_translate(glob) for glob in globs if glob not in exact]
    parts = []
    if exact:
        parts.append(f"{value} in [{', '.join(map(quote, exact))}]")
    if patterns:
        parts.append(f"{value}.matches({quote('^(?s:' + '|'.join(patterns) + ')$')})")
    return " || ".join(parts) or "false"


def allow_scope(scope: Scope) -> str:
    """Return the expression that is true where a scope allows the request."""
    place = _match_place(scope)
    conditions = [place] if place != "true" else []
    if scope.name:
        conditions.append(f"variables.name == {quote(scope.name)}")
    if scope.annotations_only:
        conditions.append(_allow_only_annotations())
    if scope.events_only:
        conditions.append(EVENT)
    groups: dict[str, list[Write]] = {}
    pointers = read_label_pointers() if scope.pod_labels else {}
    for write in scope.writes:
        pointer = pointers.get((write.group, write.resource), "")
        origin = "object" if write.operation == CREATE else "oldObject"
        groups.setdefault(f"{origin}.{pointer}" if pointer else "", []).append(write)
    choices = []
    for field, writes in groups.items():
        named = f"variables.write in [{', '.join(quote(format_write(w)) for w in writes)}]"
        labels = [_match_labels(field, scope.pod_labels)] if field else []
        choices.append(" && ".join([named, *conditions, *labels]))
    return " || ".join(f"({choice})" for choice in choices) or "false"


def build_reasons(writes: Iterable[Write], explain: Callable[[Write], str]) -> str:
    """Return the map from each write to why it is refused."""
    pairs = (f"{quote(format_write(w))}: {quote(explain(w))}" for w in sorted(set(writes)))
    return f"{{{', '.join(pairs)}}}"


def _match_place(scope: Scope) -> str:
    conditions = [
        match_globs("variables.space", globs)
        for globs in (scope.namespaces, scope.match_namespaces)
        if globs
    ]
    if scope.not_namespaces:
        conditions.append(f"!({match_globs('variables.space', scope.not_namespaces)})")
    if scope.namespace_labels:
        labels = "namespaceObject.metadata.labels"
        conditions.append(_match_labels(labels, scope.namespace_labels))
    inside = " && ".join(f"({c})" for c in conditions) if scope.namespaces else "false"
    # An object without a namespace has no labels of one.
    outside = scope.cluster_objects and not scope.namespace_labels
    return f"(variables.space == '' ? {str(outside).lower()} : ({inside}))"


def _match_labels(field: str, patterns: Mapping[str, tuple[str, ...]]) -> str:
    # `has` of a field needs its parents: each of them is checked first.
    root, *names = field.split(".")
    paths = [".".join([root, *names[: n + 1]]) for n in range(len(names))]
    present = " && ".join(f"has({path})" for path in paths)
    each = [
        f"{quote(key)} in {field} && ({match_globs(f'{field}[{quote(key)}]', globs)})"
        for key, globs in patterns.items()
    ]
    return " && ".join([f"({present})", *(f"({text})" for text in each)])


def _allow_only_annotations() -> str:
    """Return the expression that is true where nothing but Fallow's annotations changes."""
    ours = f"k.startsWith({quote(PREFIX)})"
    before, after = "variables.before", "variables.after"
    conditions = [
        f"{after}.all(k, {ours} || (k in {before} && {before}[k] == {after}[k]))",
        f"{before}.all(k, {ours} || k in {after})",
        "(has(object.spec) ? object.spec : {}) == (has(oldObject.spec) ? oldObject.spec : {})",
    ]
    for name in ("labels", "finalizers", "ownerReferences"):
        new, old = (
            f"(has({o}.metadata.{name}) ? {o}.metadata.{name} : {_EMPTY[name]})"
            for o in ("object", "oldObject")
        )
        conditions.append(f"{new} == {old}")
    return " && ".join(conditions)


def _translate(glob: str) -> str:
    """Return a glob as a regular expression of RE2; the globs are those of `fnmatch`."""
    parts, position = [], 0
    while position < len(glob):
        character = glob[position]
        position += 1
        if character == "*":
            parts.append(".*")
        elif character == "?":
            parts.append(".")
        elif character == "[" and (end := _find_end(glob, position)) > 0:
            parts.append(_translate_set(glob[position:end]))
            position = end + 1
        else:
            parts.append(_escape(character))
    return "".join(parts)


def _find_end(glob: str, start: int) -> int:
    """Return the position of the bracket that closes a set; -1: none does."""
    first = start + 1 if glob[start : start + 1] == "!" else start
    return glob.find("]", first + 1)


def _translate_set(characters: str) -> str:
    negated = characters.startswith("!")
    inner = characters[1:] if negated else characters
    ranges, position = [], 0
    while position < len(inner):
        is_range = inner[position + 1 : position + 2] == "-" and position + 2 < len(inner)
        first, last = inner[position], inner[position + 2] if is_range else inner[position]
        position += 3 if is_range else 1
        if first <= last:  # a reversed range has no characters; RE2 refuses it
            ranges.append(f"{_escape(first)}-{_escape(last)}")
    if not ranges:
        return "." if negated else NOTHING
    return f"[{'^' if negated else ''}{''.join(ranges)}]"


def _escape(character: str) -> str:
    """Return a character as itself in a pattern."""
    is_plain = character.isalnum() or ord(character) > ord("~") or character in "_ "
    return character if is_plain else f"\\x{{{ord(character):x}}}"
