"""A small OpenID Connect provider: authorization code, signed identity tokens, keys as JWKS.

Whoever is asked for is `who`, the claims of the next person: there is no password to type. What a
real provider checks is checked: client, secret, redirect, code used once, PKCE where it is used.
"""

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT, SECRET = "fallow", "s3cret of the client"


class Provider:
    """Who signs in next, and which codes are out."""

    def __init__(self, redirect_uri: str) -> None:
        self.url = ""
        self.redirect_uri = redirect_uri
        self.who: dict[str, Any] = {}
        self.asked: list[str] = []
        self._key = RSAKey.generate_key(2048, {"use": "sig", "kid": "one", "alg": "RS256"})
        self._codes: dict[str, dict[str, Any]] = {}

    def get(self, path: str, query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a GET; 302 bears its `location`."""
        self.asked.append(path)
        match path:
            case "/.well-known/openid-configuration":
                return 200, self._told()
            case "/jwks":
                return 200, {"keys": [self._key.as_dict(private=False)]}
            case "/authorize":
                return self._authorized(query)
        return 404, {"error": "not_found"}

    def post(
        self, path: str, form: Mapping[str, str], authorization: str
    ) -> tuple[int, dict[str, Any]]:
        """Answer a POST: a code becomes a token, once."""
        self.asked.append(path)
        if path != "/token":
            return 404, {"error": "not_found"}
        if not self._client(form, authorization):
            return 401, {"error": "invalid_client"}
        given = self._codes.pop(form.get("code", ""), None)
        if given is None or form.get("redirect_uri") != self.redirect_uri or not _pkce(given, form):
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 600, **given["who"]}
        if given["nonce"]:
            claims["nonce"] = given["nonce"]
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, self._key)
        answer = {
            "access_token": secrets.token_urlsafe(),
            "token_type": "Bearer",
            "expires_in": 600,
        }
        return 200, {**answer, "id_token": token}

    def _told(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "jwks_uri": f"{self.url}/jwks",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "code_challenge_methods_supported": ["S256"],
        }

    def _authorized(self, query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        right = {"client_id": CLIENT, "redirect_uri": self.redirect_uri, "response_type": "code"}
        if {name: query.get(name) for name in right} != right:
            return 400, {"error": "invalid_request"}
        code = secrets.token_urlsafe()
        self._codes[code] = {
            "who": dict(self.who),
            "nonce": query.get("nonce"),
            "challenge": query.get("code_challenge"),
        }
        back = urlencode({"code": code, "state": query.get("state", "")})
        return 302, {"location": f"{self.redirect_uri}?{back}"}

    def _client(self, form: Mapping[str, str], authorization: str) -> bool:
        given = f"{form.get('client_id')}:{form.get('client_secret')}"
        if authorization.startswith("Basic "):
            given = base64.b64decode(authorization.removeprefix("Basic ")).decode()
        return hmac.compare_digest(given, f"{CLIENT}:{SECRET}")


def _pkce(given: Mapping[str, Any], form: Mapping[str, str]) -> bool:
    if not given["challenge"]:
        return True
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    made = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    return hmac.compare_digest(made, str(given["challenge"]))


class Service:
    """The service's write endpoints as pages see them: what was asked, and by whom."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def get(self, path: str, query: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
        """Answer a GET: there is none."""
        del path, query
        return 404, {"error": "POST only"}

    def post(
        self, path: str, form: Mapping[str, Any], authorization: str
    ) -> tuple[int, dict[str, Any]]:
        """Note what is asked, and agree."""
        if authorization != f"Bearer {SECRET}":
            return 401, {"error": "the token is missing or wrong"}
        what = path.removeprefix("/v1/")
        self.asked.append((what, dict(form)))
        until = "2026-11-23T00:00:00+00:00"
        return 200, {"schema": f"fallow.{what}/v1", "by": form["by"], "until": until}


@contextmanager
def answering(what: Provider | Service) -> Iterator[None]:
    """Let it answer on loopback until the block ends; its `url` says where."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            self._say(*what.get(parts.path, dict(parse_qsl(parts.query))))

        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
            is_json = self.headers.get("Content-Type", "").startswith("application/json")
            form = json.loads(text) if is_json else dict(parse_qsl(text))
            self._say(*what.post(self.path, form, self.headers.get("Authorization", "")))

        def log_message(self, *_: object) -> None:
            return

        def _say(self, code: int, document: dict[str, Any]) -> None:
            body = b"" if code == 302 else json.dumps(document).encode()
            self.send_response(code)
            if code == 302:
                self.send_header("Location", document["location"])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    what.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
