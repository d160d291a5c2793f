"""The door to EKS node groups: their scaling configuration, read and written through the AWS API.

Paths are `eks/REGION/CLUSTER/nodegroups/NAME`; objects are what DescribeNodegroup returns.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from actions.cluster.explain import Answer, Verdict, away
from fallow.acting import Change
from fallow.errors import RefusedError, TemporaryError, UsageError

_GONE = {"ResourceNotFoundException"}
_RIGHTS = {"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"}
_BUSY = {"ResourceInUseException"}
_WAIT = {"ThrottlingException", "TooManyRequestsException"}
_PARTS = 5


class Group(msgspec.Struct, frozen=True):
    """What a path names."""

    region: str
    cluster: str
    name: str


def group(path: str) -> Group:
    """Return the node group that a path names.

    Raises:
        UsageError: it names none.
    """
    parts = path.split("/")
    if len(parts) != _PARTS or parts[0] != "eks" or parts[3] != "nodegroups":
        raise UsageError(f"{path!r} is no path of a node group: eks/REGION/CLUSTER/nodegroups/NAME")
    return Group(parts[1], parts[2], parts[4])


def client(region: str) -> Any:
    """Return a client of EKS in a region, by the AWS credential chain."""
    import boto3

    made: Any = boto3.client("eks", region_name=region)
    return made


class EksDoor:
    """Reads and writes node groups. `client` makes a client for a region."""

    def __init__(self, client: Callable[[str], Any] = client) -> None:
        self._client = client

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return a node group; None = it is not there.

        Raises:
            RefusedError: AWS does not let us.
            TemporaryError: AWS does not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        named = group(path)
        try:
            found = self._client(named.region).describe_nodegroup(
                clusterName=named.cluster, nodegroupName=named.name
            )["nodegroup"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _GONE:
                return None
            kind = RefusedError if code in _RIGHTS else TemporaryError
            raise kind(f"{path}: {error}") from error
        except BotoCoreError as error:
            raise TemporaryError(f"{path}: {error}") from error
        shown = {k: found[k] for k in ("nodegroupArn", "status", "scalingConfig") if k in found}
        return {"metadata": {"uid": found.get("nodegroupArn", ""), "name": named.name}, **shown}

    def send(self, change: Change, *, dry_run: bool) -> Answer:
        """Change a node group's sizes once; AWS has no dry run, so that one only reads."""
        try:
            found = self.get(change.path)
        except RefusedError as error:
            return Answer("refused", 403, reason=str(error), cause="rights")
        except TemporaryError as error:
            return away(str(error))
        if found is None:
            return Answer("gone", 404, reason=f"no node group {change.target.name}")
        called, state = change.target.name, found.get("status")
        if found["metadata"]["uid"] != change.target.uid:
            return Answer("conflict", 409, reason=f"{called} is another group now", cause="uid")
        if state not in {None, "ACTIVE"}:
            return Answer("throttled", 409, reason=f"{called} is {state}")
        return Answer("done", 200, found) if dry_run else self._write(change)

    def _write(self, change: Change) -> Answer:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        named = group(change.path)
        try:
            self._client(named.region).update_nodegroup_config(
                clusterName=named.cluster, nodegroupName=named.name, **change.body
            )
        except ClientError as error:
            return Answer(
                _verdict(error.response["Error"]["Code"]),
                int(error.response["ResponseMetadata"].get("HTTPStatusCode", 400)),
                reason=" ".join(str(error).split()),
            )
        except BotoCoreError as error:
            return away(" ".join(str(error).split()))
        return Answer("done", 200, self.get(change.path))


def _verdict(code: str) -> Verdict:
    if code in _GONE:
        return "gone"
    if code in _RIGHTS:
        return "refused"
    return "throttled" if code in _WAIT | _BUSY else "invalid"
