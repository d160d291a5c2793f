"""Review our own permissions: the API answers what we may do (SelfSubjectAccessReview)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from fallow.errors import RefusedError
from fallow.kube.api import ApiConnection

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_FIRST_NOT_OK = 300
"""HTTP codes from here on are no success."""


def post_review(api: ApiConnection, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Post a review of one right and return the answer.

    Raises:
        RefusedError: the API does not answer reviews.
        TemporaryError: no response.
    """
    reply = api.write("POST", REVIEWS, body, content_type="application/json")
    if reply.code >= _FIRST_NOT_OK:
        raise RefusedError(f"{api.host} does not say what we may do: HTTP {reply.code}")
    return msgspec.json.decode(reply.body, type=dict[str, Any])
