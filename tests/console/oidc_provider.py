"""A small OpenID provider on loopback: codes with PKCE, signed tokens, a JWKS; and ways to make it answer wrongly."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa

CLIENT, SECRET = "penstock", "a secret of the client"


def _key() -> Any:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider:
    """`who` is who is logged in there; `bend` changes a token's claims, `sign` how it is signed."""

    def __init__(self) -> None:
        self.key, self.other_key = _key(), _key()
        self.who: dict[str, Any] = {"sub": "1", "preferred_username": "olga", "groups": ["staff"]}
        self.bend: Callable[[dict[str, Any]], None] = lambda claims: None
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.codes: dict[str, dict[str, str]] = {}
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                split = urlsplit(self.path)
                question = {name: values[0] for name, values in parse_qs(split.query).items()}
                if split.path == "/.well-known/openid-configuration":
                    self._json(200, provider.description)
                elif split.path == "/jwks":
                    self._json(200, provider.jwks)
                elif split.path == "/authorize":
                    self.send_response(302)
                    self.send_header("location", provider.authorize(question))
                    self.send_header("content-length", "0")
                    self.end_headers()
                else:
                    self._json(404, {"error": "not_found"})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                form = {name: values[0] for name, values in parse_qs(body).items()}
                self._json(*provider.exchange(form, self.headers.get("authorization", "")))

            def _json(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Another site than the console's 127.0.0.1: cookies are kept apart as between a company's servers.
        self.issuer = f"http://localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def description(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
        }

    @property
    def jwks(self) -> dict[str, Any]:
        public = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {"keys": [{**public, "kid": "1", "use": "sig", "alg": "RS256"}]}

    def authorize(self, question: dict[str, str]) -> str:
        assert question["response_type"] == "code" and question["code_challenge_method"] == "S256"
        assert question["client_id"] == CLIENT and "openid" in question["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = question
        return question["redirect_uri"] + "?" + urlencode({"code": code, "state": question["state"]})

    def exchange(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        begun = self.codes.pop(form.get("code", ""), None)
        expected = "Basic " + base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if authorization != expected:
            return 401, {"error": "invalid_client"}
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if begun is None or challenge != begun["code_challenge"] or form["redirect_uri"] != begun["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": begun["nonce"], **self.who}
        self.bend(claims)
        return 200, {"token_type": "Bearer", "access_token": "x", "id_token": self.sign(claims)}

    def signed(self, claims: dict[str, Any], key: Any = None) -> str:
        return jwt.encode(claims, key or self.key, "RS256", headers={"kid": "1"})
