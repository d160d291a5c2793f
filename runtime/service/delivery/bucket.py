"""Put a report into a bucket once: its key identifies it, and no object is ever overwritten.

s3://bucket/prefix/CLUSTER/SCHEDULE/20261120T070000Z-fallow-finance-20261021-20261120.pdf
"""

import re
from datetime import UTC
from typing import Any
from urllib.parse import urlsplit

from actions.notices.apprise_delivery import DeliveryAttempt
from fallow.settings.reports import ReportStore
from fallow.system.deadlines import call_within
from runtime.operations.acting.journal_anchor import find_anchor
from runtime.operations.answers.reports import Report
from runtime.service.delivery.outbox import Delivery
from warehouse.cold_storage import create_s3_client

ID_KEY = "fallow-delivery"
"""Metadata that names the delivery: it shows whether an existing object is ours."""
ANCHOR_KEY = "fallow-journal"
"""Metadata with the end of the journal when the report was produced, as ROW:HASH."""
EXISTS_CODES = frozenset({"PreconditionFailed", "ConditionalRequestConflict", "412"})
NO_CONDITION_CODES = frozenset({"NotImplemented", "501"})
ABSENT_CODES = frozenset({"404", "NoSuchKey", "NotFound"})
REFUSED_CODES = frozenset(
    {
        "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "NoSuchBucket", "403",
        "InvalidBucketName", "InvalidArgument", "KMS.NotFoundException",
    }
)  # fmt: skip


def address(
    store: ReportStore, cluster: str, delivery: Delivery, report: Report
) -> tuple[str, str]:
    """Return the bucket and the key of a report."""
    parts = urlsplit(store.url)
    due = delivery.due.astimezone(UTC)
    last = f"{due:%Y%m%dT%H%M%SZ}-{report.name}"
    words = (parts.path.strip("/"), _make_safe_name(cluster), delivery.schedule, last)
    return parts.netloc, "/".join(filter(None, words))


def put(
    store: ReportStore, cluster: str, delivery: Delivery, report: Report, timeout: float
) -> DeliveryAttempt:
    """Put a report under its key within `timeout` seconds, retries included.

    All attempts make one object, so an attempt that hangs is abandoned and repeated: boto3 opens
    its connections by itself and has no other timeout than one per read.
    """
    try:
        return call_within(timeout, lambda: _put(store, cluster, delivery, report))
    except TimeoutError as error:
        return DeliveryAttempt(False, f"the object store of {store.url}: {error}", again=True)


def _put(store: ReportStore, cluster: str, delivery: Delivery, report: Report) -> DeliveryAttempt:
    """Put a report; the answer's text is its location."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

    bucket, key = address(store, cluster, delivery, report)
    where: dict[str, Any] = {"Bucket": bucket, "Key": key}
    metadata = {ID_KEY: delivery.id}
    if anchor := find_anchor(report.summary):
        metadata[ANCHOR_KEY] = anchor
    how: dict[str, Any] = {"ContentType": report.media_type, "Metadata": metadata}
    if store.encryption:
        how["ServerSideEncryption"] = store.encryption
    if store.kms_key:
        how["SSEKMSKeyId"] = store.kms_key
    try:
        client = create_s3_client(store.s3)
        try:
            client.put_object(**where, **how, Body=report.body, IfNoneMatch="*")
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code in EXISTS_CODES:
                return _check_ownership(client, where, delivery)
            if code not in NO_CONDITION_CODES:
                raise
            return _put_if_absent(client, where, how, delivery, report)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        reason = f"the object store refuses {bucket}: {code}"
        return DeliveryAttempt(False, reason, again=code not in REFUSED_CODES)
    except BotoCoreError as error:
        # The error's own text has the endpoint, never the keys.
        reason = f"the object store of {bucket} cannot be used: {' '.join(str(error).split())}"
        return DeliveryAttempt(False, reason, again=True)
    return DeliveryAttempt(True, f"s3://{bucket}/{key}")


def _check_ownership(client: Any, where: dict[str, Any], delivery: Delivery) -> DeliveryAttempt:
    """Distinguish our own object, put by an attempt that was killed, from an object of another."""
    head = client.head_object(**where)
    location = f"s3://{where['Bucket']}/{where['Key']}"
    if head.get("Metadata", {}).get(ID_KEY) == delivery.id:
        return DeliveryAttempt(True, location)
    return DeliveryAttempt(False, f"{location} is there already and not ours: not overwritten")


def _put_if_absent(
    client: Any, where: dict[str, Any], how: dict[str, Any], delivery: Delivery, report: Report
) -> DeliveryAttempt:
    """Put on a server without conditional writes: only we write below this key, one at a time."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    try:
        return _check_ownership(client, where, delivery)
    except ClientError as error:
        if error.response["Error"]["Code"] not in ABSENT_CODES:
            raise
    client.put_object(**where, **how, Body=report.body)
    return DeliveryAttempt(True, f"s3://{where['Bucket']}/{where['Key']}")


def _make_safe_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text)
