"""Tokens of an identity provider: those that are believed, and every way in which one must not be."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from respool.wire.login.json_web_keys import KeySet, parse_keys
from respool.wire.login.json_web_token import TokenRules, TokenVerifier
from respool.wire.login.mechanism import AuthenticationFailed
from wire.login.tokens import AUDIENCE, ISSUER, NOW_MS, Provider, claims_of, part, text_of

PROVIDER = Provider()
STRANGER = Provider()
SECONDS = NOW_MS // 1000
KEYS = parse_keys(PROVIDER.document())
VERIFIER = TokenVerifier(
    TokenRules(issuer=ISSUER, audience=(AUDIENCE,)),
    keys=lambda: KEYS,
)


def refused(token: str, why: str) -> None:
    with pytest.raises(AuthenticationFailed, match=why) as caught:
        VERIFIER.verify(token, NOW_MS)
    assert token not in str(caught.value)


@pytest.mark.parametrize("algorithm", ["RS256", "PS256", "ES256", "EdDSA"])
def test_a_token_of_the_provider_is_believed(algorithm: str) -> None:
    verified = VERIFIER.verify(PROVIDER.token(algorithm), NOW_MS)
    assert verified.name == "alice"
    assert verified.expires_ms == (SECONDS + 3_600) * 1_000 + 30_000


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["other", AUDIENCE]},
        {"nbf": SECONDS + 29},
        {"iat": SECONDS + 29},
        {"exp": SECONDS - 29},
        {"exp": SECONDS + 60.5},
        {"iat": None},
        {"extra": {"deep": [1, 2]}},
    ],
)
def test_tokens_that_differ_harmlessly_are_believed(claims: dict[str, Any]) -> None:
    assert VERIFIER.verify(PROVIDER.token(**claims), NOW_MS).name == "alice"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"iss": None}, "another issuer"),
        ({"iss": ISSUER + "/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"aud": None}, "another audience"),
        ({"aud": "other"}, "another audience"),
        ({"aud": []}, "another audience"),
        ({"aud": {"respool": 1}}, "another audience"),
        ({"aud": [[AUDIENCE]]}, "another audience"),
        ({"exp": None}, "when it expires"),
        ({"exp": SECONDS - 30}, "expired"),
        ({"exp": str(SECONDS + 60)}, "no time"),
        ({"exp": True}, "no time"),
        ({"exp": -1}, "no time"),
        ({"exp": 1e300}, "no time"),
        ({"exp": 10**30}, "no time"),
        ({"nbf": SECONDS + 31}, "not valid yet"),
        ({"nbf": "soon"}, "no time"),
        ({"iat": SECONDS + 31}, "not valid yet"),
        ({"sub": None}, "no name"),
        ({"sub": ""}, "no name"),
        ({"sub": 7}, "no name"),
        ({"sub": " alice"}, "no name"),
        ({"sub": "a\nb"}, "no name"),
        ({"sub": "a" * 256}, "no name"),
    ],
)
def test_a_wrong_claim_is_refused(claims: dict[str, Any], why: str) -> None:
    refused(PROVIDER.token(**claims), why)


def unsigned() -> str:
    return f"{part({'alg': 'none', 'kid': 'r'})}.{part(claims_of())}."


def keyed_with(secret: bytes) -> str:
    """CVE-2015-9256 and its many relatives: HMAC with what everybody knows as the key."""
    signed = f"{part({'alg': 'HS256', 'kid': 'r'})}.{part(claims_of())}"
    return f"{signed}.{text_of(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def public_pem() -> bytes:
    return PROVIDER.rsa.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def test_unsigned_tokens_and_hmacs_are_refused() -> None:
    refused(unsigned(), "algorithm")
    refused(unsigned()[:-1], "three parts")
    refused(keyed_with(public_pem()), "algorithm")
    refused(PROVIDER.token(header={"alg": "NONE"}), "algorithm")
    refused(PROVIDER.token(header={"alg": ["RS256"]}), "algorithm")
    refused(PROVIDER.token(header={"alg": None}), "algorithm")


def test_another_key_or_algorithm_is_refused() -> None:
    refused(STRANGER.token(), "signature is wrong")
    refused(PROVIDER.token(header={"kid": "unknown"}), "not one of the provider's")
    refused(PROVIDER.token(header={"kid": None}), "does not name its key")
    refused(PROVIDER.token(header={"kid": ""}), "does not name its key")
    refused(PROVIDER.token(header={"kid": ["r"]}), "does not name its key")
    # Signed by one of the provider's keys, and said to be of another kind.
    refused(PROVIDER.token("RS256", header={"alg": "ES256"}), "another algorithm")
    refused(PROVIDER.token("ES256", header={"kid": "d"}), "another algorithm")
    refused(PROVIDER.token("RS256", header={"alg": "PS256"}), "signature is wrong")


def test_keys_that_come_with_a_token_are_not_looked_at() -> None:
    [jwk, *_] = STRANGER.keys()
    for more in ({"jwk": jwk}, {"jku": "https://evil.example"}, {"x5u": "https://evil.example"}):
        refused(STRANGER.token(header=more), "signature is wrong")
        assert VERIFIER.verify(PROVIDER.token(header=more), NOW_MS).name == "alice"


def test_extensions_and_other_types_are_refused() -> None:
    refused(PROVIDER.token(header={"crit": ["exp"]}), "extension")
    refused(PROVIDER.token(header={"crit": []}), "extension")
    refused(PROVIDER.token(header={"typ": "secevent+jwt"}), "another use")
    assert VERIFIER.verify(PROVIDER.token(header={"typ": "at+JWT"}), NOW_MS).name == "alice"


def test_changed_tokens_are_refused() -> None:
    head, body, signature = PROVIDER.token().split(".")
    refused(f"{head}.{part(claims_of(sub='root'))}.{signature}", "signature is wrong")
    refused(f"{part({'alg': 'RS256', 'kid': 'r'})}.{body}.{signature}", "signature is wrong")
    refused(f"{head}.{body}.", "signature is wrong")
    refused(f"{head}.{body}.{signature[:-2]}", "signature")
    refused(f"{head}.{body}.{signature}=", "base64url")
    refused(f"{head}.{body}.{signature}==", "base64url")
    refused(f"{head}=.{body}.{signature}", "header")
    refused(f"{head}.{body}.{signature}\n", "base64url")
    refused(f" {head}.{body}.{signature}", "header")
    refused(f"{head}.{body}.{signature}.x.y", "three parts")
    plain = base64.b64encode(b"\xfb\xff\xfe").decode()
    refused(f"{head}.{body}.{plain}", "base64url")


def test_a_signature_of_another_form_is_refused() -> None:
    head = part({"alg": "ES256", "kid": "e"})
    signed = f"{head}.{part(claims_of())}"
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256

    der = PROVIDER.ec.sign(signed.encode(), ec.ECDSA(SHA256()))
    refused(f"{signed}.{text_of(der)}", "signature is wrong")
    refused(f"{signed}.{text_of(bytes(64))}", "signature is wrong")


def test_claims_that_two_readers_would_read_differently_are_refused() -> None:
    twice = json.dumps(claims_of())[:-1] + f', "exp": {SECONDS + 9_999_999}}}'
    refused(PROVIDER.token(claims_text=twice), "cannot be read")
    refused(PROVIDER.token(claims_text='{"exp": NaN}'), "cannot be read")
    refused(PROVIDER.token(claims_text='{"exp": Infinity}'), "cannot be read")
    refused(PROVIDER.token(claims_text="[" * 5_000), "cannot be read")
    refused(PROVIDER.token(claims_text="[]"), "no JSON object")
    refused(PROVIDER.token(claims_text="\ufeff{}"), "cannot be read")


def test_an_oversized_token_is_not_read() -> None:
    refused(PROVIDER.token(extra="x" * 20_000), "limit 16384")


def test_an_unknown_key_asks_for_the_keys_and_does_not_wait() -> None:
    asked = []
    verifier = TokenVerifier(
        TokenRules(issuer=ISSUER, audience=(AUDIENCE,)),
        keys=lambda: KeySet({}),
        on_unknown_key=lambda: asked.append(1),
    )
    with pytest.raises(AuthenticationFailed, match="provider's"):
        verifier.verify(PROVIDER.token(), NOW_MS)
    assert asked == [1]
    with pytest.raises(AuthenticationFailed):
        VERIFIER.verify(unsigned(), NOW_MS)
    assert asked == [1]


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: data.decode("latin-1")))
def test_no_text_is_believed_or_breaks_anything(token: str) -> None:
    with pytest.raises(AuthenticationFailed):
        VERIFIER.verify(token, NOW_MS)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_no_changed_byte_is_believed(at: int, mask: int) -> None:
    token = PROVIDER.token("EdDSA")
    at %= len(token)
    changed = chr((ord(token[at]) ^ mask) & 0x7F)
    if changed == token[at]:
        return
    damaged = token[:at] + changed + token[at + 1 :]
    try:
        VERIFIER.verify(damaged, NOW_MS)
    except AuthenticationFailed:
        return
    # Only the unused bits at the end of the signature's base64 may differ.
    assert at == len(token) - 1
