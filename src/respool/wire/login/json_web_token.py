"""Verifies the tokens of an identity provider: compact JWS (RFC 7515, 7519) in the narrowest form.

The signature is checked before any claim is used. A token names its key by `kid`; keys in a token or linked from
it (`jwk`, `jku`, `x5c`, `x5u`) are ignored. `iss`, `aud` and `exp` are required.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from respool.wire.login.json_web_keys import KeySet, base64url
from respool.wire.login.mechanism import AuthenticationFailed
from respool.wire.login.oauthbearer import VerifiedToken

TOKEN_BYTES_MAX = 16_384
ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
# The types of RFC 7519 and RFC 9068: a token for another use is not an access token.
_TYPES = ("jwt", "at+jwt", "application/at+jwt")
# The latest expiry time that is accepted: 9999-12-31.
_SECONDS_MAX = 253_402_300_799


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRules:
    issuer: str
    # Any of them.
    audience: tuple[str, ...]
    name_claim: str = "sub"
    # How far the provider's clock may be from ours.
    skew_ms: int = 30_000

    def __post_init__(self) -> None:
        assert self.issuer
        assert self.audience
        assert all(self.audience)
        assert self.name_claim


class TokenVerifier:
    def __init__(
        self,
        rules: TokenRules,
        *,
        keys: Callable[[], KeySet],
        on_unknown_key: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_unknown_key` may fetch the keys again; the login that names the key does not wait for it."""
        self._rules = rules
        self._keys = keys
        self._on_unknown_key = on_unknown_key

    def verify(self, token: str, now_ms: int) -> VerifiedToken:
        """
        Raises:
            AuthenticationFailed: with the reason, which never repeats the token.
        """
        if len(token) > TOKEN_BYTES_MAX:
            raise AuthenticationFailed(f"a token of {len(token)} bytes, limit {TOKEN_BYTES_MAX}")
        parts = token.split(".")
        if len(parts) != 3:
            raise AuthenticationFailed("not a signed token of three parts")
        header = _json_object(parts[0], "header")
        self._check_signature(header, parts)
        claims = _json_object(parts[1], "claims")
        return self._check_claims(claims, now_ms)

    def _check_signature(self, header: dict[str, Any], parts: list[str]) -> None:
        algorithm, kid = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise AuthenticationFailed(f"its algorithm is not one of {', '.join(ALGORITHMS)}")
        if "crit" in header:
            raise AuthenticationFailed("it requires an unsupported extension")
        if "typ" in header and str(header["typ"]).lower() not in _TYPES:
            raise AuthenticationFailed("it is a token for another use")
        if not isinstance(kid, str) or not kid:
            raise AuthenticationFailed("it does not name its key")
        keys = self._keys()
        verify = keys.find(kid, algorithm)
        if verify is None:
            if keys.has(kid):
                raise AuthenticationFailed("its key is for another algorithm")
            self._on_unknown_key()
            raise AuthenticationFailed("its key is not one of the provider's")
        try:
            signature = base64url(parts[2])
        except ValueError:
            raise AuthenticationFailed("its signature is not base64url") from None
        try:
            verify(signature, f"{parts[0]}.{parts[1]}".encode())
        except Exception as error:  # noqa: BLE001 - whatever the library says, it did not verify.
            raise AuthenticationFailed(f"its signature is wrong ({type(error).__name__})") from None

    def _check_claims(self, claims: dict[str, Any], now_ms: int) -> VerifiedToken:
        rules = self._rules
        if claims.get("iss") != rules.issuer:
            raise AuthenticationFailed("it is from another issuer")
        audience = claims.get("aud")
        audiences = [audience] if isinstance(audience, str) else audience
        if not isinstance(audiences, list) or not any(
            isinstance(one, str) and one in rules.audience for one in audiences
        ):
            raise AuthenticationFailed("it is for another audience")
        expires_ms = _time_ms(claims, "exp")
        if expires_ms is None:
            raise AuthenticationFailed("it does not say when it expires")
        if expires_ms + rules.skew_ms <= now_ms:
            raise AuthenticationFailed("it has expired")
        for claim in ("nbf", "iat"):
            begins_ms = _time_ms(claims, claim)
            if begins_ms is not None and begins_ms - rules.skew_ms > now_ms:
                raise AuthenticationFailed(f"it is not valid yet ({claim})")
        name = claims.get(rules.name_claim)
        if not isinstance(name, str) or not _is_name(name):
            raise AuthenticationFailed(f"its {rules.name_claim} is no name")
        # Includes the tolerated skew, so an accepted token always has some lifetime left.
        return VerifiedToken(name, expires_ms + rules.skew_ms)


def _json_object(part: str, what: str) -> dict[str, Any]:
    try:
        parsed = json.loads(
            base64url(part).decode(),
            object_pairs_hook=_without_repeats,
            parse_constant=_refuse_constant,
        )
    except (ValueError, RecursionError):
        raise AuthenticationFailed(f"its {what} cannot be read") from None
    if not isinstance(parsed, dict):
        raise AuthenticationFailed(f"its {what} is no JSON object")
    return parsed


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two equal names, different parsers might use different ones."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is repeated")
    return found


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _time_ms(claims: dict[str, Any], claim: str) -> int | None:
    value = claims.get(claim)
    if claim not in claims:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise AuthenticationFailed(f"its {claim} is no time")
    if not 0 <= value <= _SECONDS_MAX:
        raise AuthenticationFailed(f"its {claim} is no time")
    return int(value * 1000)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= 255 and name.isprintable() and name == name.strip()
