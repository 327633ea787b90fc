"""Users, delegation tokens and the logins' secret in the metadata store.

```
/users/<name in base64url>     {"name", "scram": {mechanism: {"salt", "stored_key", "server_key", "iterations"}}}
/tokens/<id>                   {"owner", "requester", "renewers", "issued_ms", "expires_ms", "max_ms"}
/login-secret                  {"key"}     makes the salts of users that do not exist
```
As in `keys.py`, a missing field has its default, and an unknown field is ignored.
"""

import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from respool.model.cluster import ClusterImage
from respool.model.errors import InvalidRequest
from respool.model.security.delegation_token import DelegationToken
from respool.model.security.principal import Principal
from respool.model.security.scram_credential import SCRAM_HASHES, ScramCredential, User
from respool.ports.metadata_store import StoredValue

logger = logging.getLogger(__name__)

USERS = "/users/"
TOKENS = "/tokens/"
LOGIN_SECRET = "/login-secret"  # noqa: S105 - a key's name.

Item = TypeVar("Item")


def user_key(name: str) -> str:
    return USERS + base64.urlsafe_b64encode(name.encode()).decode().rstrip("=")


def token_key(token_id: str) -> str:
    return TOKENS + token_id


def encode_user(user: User) -> bytes:
    scram = {
        one.mechanism: {
            "salt": _text(one.salt),
            "stored_key": _text(one.stored_key),
            "server_key": _text(one.server_key),
            "iterations": one.iterations,
        }
        for one in user.credentials.values()
    }
    return _dump({"name": user.name, "scram": scram})


def decode_user(value: bytes, *, revision: int = 0) -> User:
    fields = json.loads(value)
    credentials = {
        mechanism: ScramCredential(
            mechanism=mechanism,
            salt=base64.b64decode(one["salt"]),
            stored_key=base64.b64decode(one["stored_key"]),
            server_key=base64.b64decode(one["server_key"]),
            iterations=one["iterations"],
        )
        for mechanism, one in fields["scram"].items()
        # A newer version may know more.
        if mechanism in SCRAM_HASHES
    }
    return User(name=fields["name"], credentials=credentials, revision=revision)


def encode_token(token: DelegationToken) -> bytes:
    return _dump(
        {
            "owner": str(token.owner),
            "requester": str(token.requester),
            "renewers": [str(one) for one in token.renewers],
            "issued_ms": token.issued_ms,
            "expires_ms": token.expires_ms,
            "max_ms": token.max_ms,
        }
    )


def decode_token(token_id: str, value: bytes, *, revision: int = 0) -> DelegationToken:
    fields = json.loads(value)
    return DelegationToken(
        id=token_id,
        owner=Principal.parse(fields["owner"]),
        requester=Principal.parse(fields["requester"]),
        renewers=tuple(Principal.parse(one) for one in fields["renewers"]),
        issued_ms=fields["issued_ms"],
        expires_ms=fields["expires_ms"],
        max_ms=fields["max_ms"],
        revision=revision,
    )


def encode_login_secret(secret: bytes) -> bytes:
    return _dump({"key": _text(secret)})


def with_logins(
    image: ClusterImage, values: Mapping[str, StoredValue], changed: Iterable[str]
) -> ClusterImage:
    """The image with the users and tokens of these keys; the same image if none of them is one."""
    names = [key for key in changed if key.startswith((USERS, TOKENS, LOGIN_SECRET))]
    if not names:
        return image
    users, tokens, secret = dict(image.users), dict(image.tokens), image.login_secret
    before = {user_key(name): name for name in users}
    for key in sorted(names):
        stored = values.get(key)
        if key == LOGIN_SECRET:
            secret = b"" if stored is None else base64.b64decode(json.loads(stored.value)["key"])
        elif key.startswith(USERS):
            if (name := before.get(key)) is not None:
                users.pop(name, None)
            user = _read(key, stored, decode_user)
            # Only a newer version stores a user without a credential that this one knows.
            if user is not None and user.credentials:
                users[user.name] = user
        else:
            token_id = key.removeprefix(TOKENS)
            tokens.pop(token_id, None)
            token = _read(
                key,
                stored,
                lambda value, revision: decode_token(token_id, value, revision=revision),  # noqa: B023
            )
            if token is not None:
                tokens[token_id] = token
    return replace(image, users=users, tokens=tokens, login_secret=secret)


def _read(key: str, stored: StoredValue | None, decode: Callable[..., Item]) -> Item | None:
    """The value; None if there is none, or if it cannot be read: nobody logs in by what is not understood."""
    if stored is None:
        return None
    try:
        return decode(stored.value, revision=stored.revision)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidRequest) as error:
        logger.warning("%s in the metadata store cannot be read: %s", key, type(error).__name__)
        return None


def _dump(fields: Mapping[str, object]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), sort_keys=True).encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def as_fields(user: User) -> dict[str, Any]:
    """What may be shown of a user: no keys and no salt."""
    return {
        "name": user.name,
        "credentials": [
            {"mechanism": one.mechanism, "iterations": one.iterations}
            for _, one in sorted(user.credentials.items())
        ],
    }
