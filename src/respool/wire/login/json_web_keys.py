"""The public keys of an identity provider (JWKS, RFC 7517), and signatures that they verify.

Only a fixed list of asymmetric algorithms is accepted, and each key verifies only its own: a token can choose neither
`none` nor an HMAC keyed with a public key.
"""

import json
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

DOCUMENT_BYTES_MAX = 1 << 20
KEYS_MAX = 1_000
RSA_BITS_MIN, RSA_BITS_MAX = 2_048, 8_192
_P256_BYTES = 32

# Takes the signature and what was signed; raises an error if the signature is wrong.
Verify = Callable[[bytes, bytes], None]


class KeysUnusable(ValueError):
    """The document is not a key set, or has no usable key."""


class KeySet:
    """Keys by their id and the algorithm that they are for."""

    def __init__(self, verifiers: Mapping[tuple[str, str], Verify]) -> None:
        self._verifiers = verifiers

    def __len__(self) -> int:
        return len({kid for kid, _ in self._verifiers})

    def find(self, kid: str, algorithm: str) -> Verify | None:
        return self._verifiers.get((kid, algorithm))

    def has(self, kid: str) -> bool:
        return any(kid == one for one, _ in self._verifiers)


NO_KEYS = KeySet({})


def parse_keys(document: bytes) -> KeySet:
    """Keys that are for other uses, of other kinds, or too weak are left out.

    Raises:
        KeysUnusable
    """
    if len(document) > DOCUMENT_BYTES_MAX:
        raise KeysUnusable(f"the keys are {len(document)} bytes, limit {DOCUMENT_BYTES_MAX}")
    try:
        listed = json.loads(document)["keys"]
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise KeysUnusable(f"not a list of at most {KEYS_MAX} keys")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KeysUnusable(f"not a set of keys: {type(error).__name__}") from None
    verifiers: dict[tuple[str, str], Verify] = {}
    for one in listed:
        if not isinstance(one, dict) or one.get("use", "sig") != "sig":
            continue
        kid = one.get("kid")
        if not isinstance(kid, str) or not kid:
            continue
        try:
            made = _verifiers(one)
        except (ValueError, TypeError, KeyError):
            continue
        wanted = one.get("alg")
        verifiers |= {
            (kid, name): verify for name, verify in made.items() if wanted in (None, name)
        }
    if not verifiers:
        raise KeysUnusable("none of the keys has an id and can verify RS256, PS256, ES256 or EdDSA")
    return KeySet(verifiers)


def _verifiers(key: Mapping[str, Any]) -> dict[str, Verify]:
    """The algorithms that this key verifies; none for another kind of key."""
    kind = key.get("kty")
    if kind == "RSA":
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicNumbers

        numbers = RSAPublicNumbers(e=_integer(key["e"]), n=_integer(key["n"]))
        if not RSA_BITS_MIN <= numbers.n.bit_length() <= RSA_BITS_MAX:
            return {}
        return _of_rsa(numbers.public_key())
    if kind == "EC" and key.get("crv") == "P-256":
        from cryptography.hazmat.primitives.asymmetric import ec

        point = ec.EllipticCurvePublicNumbers(
            _integer(key["x"]), _integer(key["y"]), ec.SECP256R1()
        )
        return {"ES256": _of_ec(point.public_key())}
    if kind == "OKP" and key.get("crv") == "Ed25519":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        return {"EdDSA": _of_ed25519(Ed25519PublicKey.from_public_bytes(base64url(key["x"])))}
    return {}


def _of_rsa(key: "RSAPublicKey") -> dict[str, Verify]:
    from cryptography.hazmat.primitives.asymmetric import padding
    from cryptography.hazmat.primitives.hashes import SHA256

    def rs256(signature: bytes, signed: bytes) -> None:
        key.verify(signature, signed, padding.PKCS1v15(), SHA256())

    def ps256(signature: bytes, signed: bytes) -> None:
        salted = padding.PSS(mgf=padding.MGF1(SHA256()), salt_length=SHA256.digest_size)
        key.verify(signature, signed, salted, SHA256())

    return {"RS256": rs256, "PS256": ps256}


def _of_ec(key: "EllipticCurvePublicKey") -> Verify:
    from cryptography.hazmat.primitives.asymmetric import ec, utils
    from cryptography.hazmat.primitives.hashes import SHA256

    def es256(signature: bytes, signed: bytes) -> None:
        if len(signature) != 2 * _P256_BYTES:
            raise ValueError("a signature of another size")
        r, s = (int.from_bytes(half) for half in (signature[:_P256_BYTES], signature[_P256_BYTES:]))
        key.verify(utils.encode_dss_signature(r, s), signed, ec.ECDSA(SHA256()))

    return es256


def _of_ed25519(key: "Ed25519PublicKey") -> Verify:
    return key.verify


def base64url(text: object) -> bytes:
    """Decode base64url without padding, as JOSE writes it; nothing else is accepted.

    Raises:
        ValueError
    """
    if not isinstance(text, str) or not text.isascii():
        raise ValueError("not base64url")
    if not all(letter.isalnum() or letter in "-_" for letter in text) or len(text) % 4 == 1:
        raise ValueError("not base64url")
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _integer(text: object) -> int:
    return int.from_bytes(base64url(text))
