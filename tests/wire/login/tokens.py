"""An identity provider for tests: its keys, as it publishes them, and tokens that it signs."""

import base64
import json
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

NOW_MS = 1_800_000_000_000
ISSUER, AUDIENCE = "https://id.example.org", "respool"


def text_of(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def part(value: object) -> str:
    return text_of(json.dumps(value).encode())


def number(value: int) -> str:
    return text_of(value.to_bytes((value.bit_length() + 7) // 8))


class Provider:
    def __init__(self, *, rsa_bits: int = 2_048) -> None:
        self.rsa = rsa.generate_private_key(public_exponent=65_537, key_size=rsa_bits)
        self.ec = ec.generate_private_key(ec.SECP256R1())
        self.ed = ed25519.Ed25519PrivateKey.generate()

    def keys(self, **more: Any) -> list[dict[str, Any]]:
        numbers = self.rsa.public_key().public_numbers()
        point = self.ec.public_key().public_numbers()
        return [
            {"kty": "RSA", "kid": "r", "n": number(numbers.n), "e": number(numbers.e)} | more,
            {
                "kty": "EC",
                "crv": "P-256",
                "kid": "e",
                "x": text_of(point.x.to_bytes(32)),
                "y": text_of(point.y.to_bytes(32)),
            },
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "kid": "d",
                "x": text_of(self.ed.public_key().public_bytes_raw()),
            },
        ]

    def document(self, **more: Any) -> bytes:
        return json.dumps({"keys": self.keys(**more)}).encode()

    def sign(self, algorithm: str, signed: bytes) -> bytes:
        if algorithm == "ES256":
            r, s = decode_dss_signature(self.ec.sign(signed, ec.ECDSA(SHA256())))
            return r.to_bytes(32) + s.to_bytes(32)
        if algorithm == "EdDSA":
            return self.ed.sign(signed)
        if algorithm == "PS256":
            salted = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=32)
            return self.rsa.sign(signed, salted, SHA256())
        return self.rsa.sign(signed, padding.PKCS1v15(), SHA256())

    def token(
        self,
        algorithm: str = "RS256",
        *,
        header: dict[str, Any] | None = None,
        claims_text: str | None = None,
        **claims: Any,
    ) -> str:
        kid = {"ES256": "e", "EdDSA": "d"}.get(algorithm, "r")
        head = part({"alg": algorithm, "kid": kid, "typ": "JWT"} | (header or {}))
        body = (
            text_of(claims_text.encode()) if claims_text is not None else part(claims_of(**claims))
        )
        return f"{head}.{body}.{text_of(self.sign(algorithm, f'{head}.{body}'.encode()))}"


def claims_of(**changed: Any) -> dict[str, Any]:
    """A good token's claims; None removes one."""
    seconds = NOW_MS // 1000
    claims = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "alice",
        "iat": seconds - 60,
        "exp": seconds + 3_600,
    } | changed
    return {name: value for name, value in claims.items() if value is not None}
