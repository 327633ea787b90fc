"""An OpenID provider for tests: its keys over HTTPS, and tokens signed by them, also by the client grant."""

import base64
import json
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs

import trustme
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from support.secured_broker import write_certificate

AUDIENCE = "respool"
LIFETIME_S = 3_600
_NUMBER_BYTES = 32


class IdentityProvider:
    def __init__(self, url: str, ca_file: Path) -> None:
        self.url = url
        self.ca_file = ca_file
        self.fetches = 0
        self.is_down = False
        self.rotate()

    @property
    def keys_url(self) -> str:
        return f"{self.url}/keys"

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def rotate(self) -> None:
        """From now on tokens are signed by a new key, and only that one is published."""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._key_id = f"key-{time.monotonic_ns()}"

    def token(self, subject: str, **changed: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": subject,
            "iat": now,
            "exp": now + LIFETIME_S,
        }
        head = {"alg": "ES256", "typ": "JWT", "kid": self._key_id}
        signed = ".".join(_encoded(json.dumps(one).encode()) for one in (head, claims | changed))
        r, s = decode_dss_signature(self._key.sign(signed.encode(), ec.ECDSA(SHA256())))
        signature = b"".join(one.to_bytes(_NUMBER_BYTES, "big") for one in (r, s))
        return f"{signed}.{_encoded(signature)}"

    def document(self) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        x, y = (_encoded(one.to_bytes(_NUMBER_BYTES, "big")) for one in (numbers.x, numbers.y))
        key = {"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "x": x, "y": y}
        return {"keys": [key | {"kid": self._key_id}]}


@contextmanager
def identity_provider(folder: Path) -> Iterator[IdentityProvider]:
    authority = trustme.CA()
    certificate = write_certificate(folder / "provider.pem", authority.issue_cert("localhost"))
    ca_file = folder / "provider-ca.pem"
    ca_file.write_bytes(authority.cert_pem.bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)

    class Pages(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.fetches += 1
            if provider.is_down:
                self.send_error(503)
            else:
                self._answer(provider.document())

        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            assert asked["grant_type"] == ["client_credentials"]
            basic = base64.b64decode(self.headers["Authorization"].removeprefix("Basic "))
            subject = basic.decode().partition(":")[0]
            token = provider.token(subject)
            self._answer({"access_token": token, "token_type": "Bearer", "expires_in": LIFETIME_S})

        def _answer(self, document: dict[str, Any]) -> None:
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    provider = IdentityProvider(f"https://localhost:{server.server_port}", ca_file)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
