"""Who may do what: everybody everything, but for what a test or a user of the stand-in denies."""

from typing import Any

import msgspec

from simulator.kube.status import ApiError

Object = dict[str, Any]

ADMIN = "kubernetes-admin"


class Asking(msgspec.Struct, frozen=True):
    """What somebody wants to do; `resource` has its subresource (`pods/eviction`)."""

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
    """The denials in force, and whose token is whose."""

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
        """Return who sends a request with this header."""
        return self.users.get(authorization.removeprefix("Bearer ").strip(), ADMIN)

    def allowed(self, user: str, asking: Asking) -> bool:
        """Tell whether somebody may."""
        return not any(
            d.verb in {"*", asking.verb}
            and d.resource in {"*", asking.resource}
            and d.group in {"*", asking.group}
            and d.namespace in {"*", asking.namespace}
            and d.user in {"*", user}
            for d in self.denials
        )

    def check(self, user: str, asking: Asking) -> None:
        """Refuse what is denied.

        Raises:
            ApiError: 403.
        """
        if self.allowed(user, asking):
            return
        plain = asking.resource.partition("/")[0]
        what = f"{plain}.{asking.group}" if asking.group else plain
        named = f'{what} "{asking.name}"' if asking.name else what
        where = f'in the namespace "{asking.namespace}"' if asking.namespace else ""
        said = (
            f'{named} is forbidden: User "{user}" cannot {asking.verb} resource '
            f'"{asking.resource}" in API group "{asking.group}" '
            f"{where or 'at the cluster scope'}"
        )
        details = {"name": asking.name, "group": asking.group, "kind": plain}
        raise ApiError(403, "Forbidden", said, {k: v for k, v in details.items() if v})

    def review(self, user: str, body: Object) -> Object:
        """Return the answer to a SelfSubjectAccessReview."""
        asked = (body.get("spec") or {}).get("resourceAttributes") or {}
        resource = asked.get("resource", "*")
        if part := asked.get("subresource"):
            resource = f"{resource}/{part}"
        asking = Asking(
            asked.get("verb", "*"), asked.get("group", ""), resource, asked.get("namespace", "")
        )
        allowed = self.allowed(user, asking)
        return {
            "kind": "SelfSubjectAccessReview",
            "apiVersion": "authorization.k8s.io/v1",
            "metadata": {},
            "spec": body.get("spec") or {},
            "status": {"allowed": allowed},
        }
