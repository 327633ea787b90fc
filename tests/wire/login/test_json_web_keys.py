"""The provider's keys: what is used, what is left out, and what is no set of keys."""

import json

import pytest

from respool.wire.login.json_web_keys import KeysUnusable, base64url, parse_keys
from wire.login.tokens import Provider

PROVIDER = Provider()


def test_each_key_verifies_its_own_algorithms_only() -> None:
    keys = parse_keys(PROVIDER.document())
    assert len(keys) == 3
    assert keys.find("r", "RS256") is not None
    assert keys.find("r", "PS256") is not None
    assert keys.find("e", "ES256") is not None
    assert keys.find("d", "EdDSA") is not None
    assert keys.find("r", "ES256") is None
    assert keys.find("e", "RS256") is None
    assert keys.has("r")
    assert not keys.has("x")


def test_a_key_with_an_algorithm_is_for_that_one() -> None:
    keys = parse_keys(PROVIDER.document(alg="PS256"))
    assert keys.find("r", "PS256") is not None
    assert keys.find("r", "RS256") is None


@pytest.mark.parametrize(
    "more", [{"use": "enc"}, {"kid": ""}, {"kid": None}, {"n": "AQAB"}, {"n": "!"}, {"kty": "oct"}]
)
def test_keys_that_cannot_be_used_are_left_out(more: dict[str, str]) -> None:
    assert not parse_keys(PROVIDER.document(**more)).has("r")


def test_a_weak_key_is_left_out() -> None:
    weak = Provider(rsa_bits=1_024)
    assert not parse_keys(weak.document()).has("r")


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"keys": []}',
        b'{"keys": {}}',
        b'{"keys": [1, null, "x"]}',
        b'{"keys": [{"kty": "oct", "kid": "a", "k": "AAAA"}]}',
        b"[" * 100_000,
        b"\xff\xfe",
        json.dumps({"keys": [{}] * 2_000}).encode(),
        b" " * (1 << 20) + b"{}",
    ],
)
def test_what_is_no_set_of_keys_is_refused(document: bytes) -> None:
    with pytest.raises(KeysUnusable):
        parse_keys(document)


@pytest.mark.parametrize("text", ["A", "AA=", "AA==", "A+", "A/", "AA\n", "ä", 7, None])
def test_base64url_is_read_strictly(text: object) -> None:
    with pytest.raises(ValueError, match="base64url"):
        base64url(text)
