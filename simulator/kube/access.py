"""Decide who may do what: everything is allowed, except what a test or user denies."""

from typing import Any

import msgspec

from simulator.kube.status import StatusError

Object = dict[str, Any]

ADMIN = "kubernetes-admin"


class AccessReview(msgspec.Struct, frozen=True):
    """A requested permission; `resource` has its subresource (`pods/eviction`)."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Denial(msgspec.Struct, frozen=True):
    """What is denied; `*` stands for anything."""

    verb: str
    resource: str
    group: str = "*"
    namespace: str = "*"
    user: str = "*"


class Access:
    """The denials in force, and the users of the tokens."""

    def __init__(self) -> None:
        self.denials: set[Denial] = set()
        self.users: dict[str, str] = {}
        """Name by bearer token; any other token is the administrator's."""

    def deny(
        self, verb: str, resource: str, *, group: str = "*", namespace: str = "*", user: str = "*"
    ) -> None:
        """Deny from now on."""
        self.denials.add(Denial(verb, resource, group, namespace, user))

    def user(self, authorization: str) -> str:
        """Return the user of a request with this header."""
        return self.users.get(authorization.removeprefix("Bearer ").strip(), ADMIN)

    def allowed(self, user: str, review: AccessReview) -> bool:
        """Return whether a user has a permission."""
        return not any(
            d.verb in {"*", review.verb}
            and d.resource in {"*", review.resource}
            and d.group in {"*", review.group}
            and d.namespace in {"*", review.namespace}
            and d.user in {"*", user}
            for d in self.denials
        )

    def check(self, user: str, review: AccessReview) -> None:
        """Refuse what is denied.

        Raises:
            ApiError: 403.
        """
        if self.allowed(user, review):
            return
        plain = review.resource.partition("/")[0]
        resource_text = f"{plain}.{review.group}" if review.group else plain
        named = f'{resource_text} "{review.name}"' if review.name else resource_text
        where = f'in the namespace "{review.namespace}"' if review.namespace else ""
        message = (
            f'{named} is forbidden: User "{user}" cannot {review.verb} resource '
            f'"{review.resource}" in API group "{review.group}" '
            f"{where or 'at the cluster scope'}"
        )
        details = {"name": review.name, "group": review.group, "kind": plain}
        raise StatusError(403, "Forbidden", message, {k: v for k, v in details.items() if v})

    def review(self, user: str, body: Object) -> Object:
        """Return the answer to a SelfSubjectAccessReview."""
        attributes = (body.get("spec") or {}).get("resourceAttributes") or {}
        resource = attributes.get("resource", "*")
        if part := attributes.get("subresource"):
            resource = f"{resource}/{part}"
        review = AccessReview(
            attributes.get("verb", "*"),
            attributes.get("group", ""),
            resource,
            attributes.get("namespace", ""),
        )
        allowed = self.allowed(user, review)
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": body.get("spec") or {},
            "status": {"allowed": allowed},
        }
