"""Read and write the scaling configuration of EKS node groups through the AWS API.

Paths are `eks/REGION/CLUSTER/nodegroups/NAME`; objects are what DescribeNodegroup returns.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from actions.cluster.write_results import WriteResult, WriteVerdict, report_no_answer
from fallow.action_models import Change
from fallow.errors import RefusedError, TemporaryError, UsageError
from fallow.system.deadlines import call_within

_NOT_FOUND = {"ResourceNotFoundException"}
_RIGHTS = {"AccessDeniedException", "UnrecognizedClientException", "ExpiredTokenException"}
_BUSY = {"ResourceInUseException"}
_WAIT = {"ThrottlingException", "TooManyRequestsException"}
_PARTS = 5
CALL_S = 60.0
"""Seconds for one call in all: boto3's timeouts are per read, and it repeats calls."""


class NodeGroup(msgspec.Struct, frozen=True):
    """The node group that a path names."""

    region: str
    cluster: str
    name: str


def parse_group(path: str) -> NodeGroup:
    """Return the node group that a path names.

    Raises:
        UsageError: the path names none.
    """
    parts = path.split("/")
    if len(parts) != _PARTS or parts[0] != "eks" or parts[3] != "nodegroups":
        raise UsageError(f"{path!r} is no path of a node group: eks/REGION/CLUSTER/nodegroups/NAME")
    return NodeGroup(parts[1], parts[2], parts[4])


def connect_eks(region: str) -> Any:
    """Return a client of EKS in a region, by the AWS credential chain."""
    import boto3

    client: Any = boto3.client("eks", region_name=region)
    return client


class EksClient:
    """Reads and writes node groups. `client` makes a client for a region."""

    def __init__(self, client: Callable[[str], Any] = connect_eks) -> None:
        self._client = client

    def get(self, path: str) -> Mapping[str, Any] | None:
        """Return a node group; None = it does not exist.

        Raises:
            RefusedError: AWS denies the call.
            TemporaryError: AWS does not answer.
        """
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        node_group = parse_group(path)
        try:
            description = call_within(
                CALL_S,
                lambda: self._client(node_group.region).describe_nodegroup(
                    clusterName=node_group.cluster, nodegroupName=node_group.name
                ),
            )["nodegroup"]
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in _NOT_FOUND:
                return None
            kind = RefusedError if code in _RIGHTS else TemporaryError
            raise kind(f"{path}: {error}") from error
        except (BotoCoreError, TimeoutError) as error:
            raise TemporaryError(f"{path}: {error}") from error
        fields = {
            k: description[k]
            for k in ("nodegroupArn", "status", "scalingConfig")
            if k in description
        }
        return {
            "metadata": {"uid": description.get("nodegroupArn", ""), "name": node_group.name},
            **fields,
        }

    def send(self, change: Change, *, dry_run: bool) -> WriteResult:
        """Change a node group's sizes once; AWS has no dry run, so a dry run only reads."""
        try:
            current = self.get(change.path)
        except RefusedError as error:
            return WriteResult("refused", 403, reason=str(error), cause="rights")
        except TemporaryError as error:
            return report_no_answer(str(error))
        if current is None:
            return WriteResult("gone", 404, reason=f"no node group {change.target.name}")
        name, status = change.target.name, current.get("status")
        if current["metadata"]["uid"] != change.target.uid:
            return WriteResult("conflict", 409, reason=f"{name} is another group now", cause="uid")
        if status not in {None, "ACTIVE"}:
            return WriteResult("throttled", 409, reason=f"{name} is {status}")
        return WriteResult("done", 200, current) if dry_run else self._write(change)

    def _write(self, change: Change) -> WriteResult:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        node_group = parse_group(change.path)
        try:
            call_within(
                CALL_S,
                lambda: self._client(node_group.region).update_nodegroup_config(
                    clusterName=node_group.cluster, nodegroupName=node_group.name, **change.body
                ),
            )
        except ClientError as error:
            return WriteResult(
                _to_verdict(error.response["Error"]["Code"]),
                int(error.response["ResponseMetadata"].get("HTTPStatusCode", 400)),
                reason=" ".join(str(error).split()),
            )
        except (BotoCoreError, TimeoutError) as error:
            return report_no_answer(" ".join(str(error).split()))
        return WriteResult("done", 200, self.get(change.path))


def _to_verdict(code: str) -> WriteVerdict:
    if code in _NOT_FOUND:
        return "gone"
    if code in _RIGHTS:
        return "refused"
    return "throttled" if code in _WAIT | _BUSY else "invalid"
