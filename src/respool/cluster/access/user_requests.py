"""Requests to change users: their SCRAM credentials, which PLAIN logins are compared with too."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from respool.cluster.guarded_write import OPERATIONS_MAX, GuardedWrite
from respool.cluster.login_store import encode_user, token_key, user_key
from respool.cluster.view import ClusterView
from respool.model.errors import PolicyViolation
from respool.model.security.principal import Principal
from respool.model.security.scram_credential import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    SCRAM_HASHES,
    ScramCredential,
    User,
    name_problem,
)
from respool.model.security.security_errors import (
    CredentialNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from respool.ports.metadata_store import Guard

USERS_MAX = 50_000
SALT_BYTES_MAX = 1_024
TOKENS_PER_WRITE = OPERATIONS_MAX - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialChange:
    """One credential of one user: stored, or deleted."""

    user: str
    mechanism: str
    # None: it is deleted.
    salted_password: bytes | None = field(default=None, repr=False)
    salt: bytes = field(default=b"", repr=False)
    iterations: int = 0

    def check(self) -> None:
        """
        Raises:
            RequestError: it can be neither stored nor deleted.
        """
        problem = name_problem(self.user)
        if problem is not None:
            raise UnacceptableCredential(problem)
        if self.mechanism not in SCRAM_HASHES:
            raise UnsupportedSaslMechanism("Unknown SCRAM mechanism")
        if self.salted_password is None:
            return
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            raise UnacceptableCredential(
                f"iterations = {self.iterations}: from {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        if not self.salted_password or not 0 < len(self.salt) <= SALT_BYTES_MAX:
            raise UnacceptableCredential("salt and salted password must not be empty")


def change_user(view: ClusterView, changes: Sequence[CredentialChange]) -> list[GuardedWrite]:
    """Change the credentials of one user; a user without credentials is removed.

    Raises:
        RequestError: nothing is changed.
    """
    name = changes[0].user
    assert all(one.user == name for one in changes)
    before = view.image.users.get(name)
    credentials = dict(before.credentials) if before is not None else {}
    for one in changes:
        one.check()
        if one.salted_password is None:
            if one.mechanism not in credentials:
                raise CredentialNotFound("Attempt to delete a user credential that does not exist")
            del credentials[one.mechanism]
        else:
            credentials[one.mechanism] = ScramCredential.from_salted(
                one.mechanism, one.salted_password, salt=one.salt, iterations=one.iterations
            )
    if before is None and len(view.image.users) >= USERS_MAX:
        raise PolicyViolation(f"there are {USERS_MAX} users, which is the limit")
    if credentials or before is None:
        return [_write(view, name, credentials, before)]
    return _removal(view, before)


def remove_user(view: ClusterView, name: str) -> list[GuardedWrite]:
    """
    Raises:
        CredentialNotFound: there is no such user.
    """
    before = view.image.users.get(name)
    if before is None:
        raise CredentialNotFound(f"there is no user {name!r}")
    return _removal(view, before)


def _removal(view: ClusterView, user: User) -> list[GuardedWrite]:
    """Remove a user and the delegation tokens that log in as it."""
    owner = Principal(user.name)
    owned = [token_key(one.id) for one in view.image.tokens.values() if one.owner == owner]
    # The user last: as long as it is there, an interrupted removal can be repeated.
    writes = [
        GuardedWrite(
            guards=(view.guard,),
            deletes=tuple(owned[at : at + TOKENS_PER_WRITE]),
            why=f"delegation tokens of user {user.name!r} are removed",
        )
        for at in range(0, len(owned), TOKENS_PER_WRITE)
    ]
    return [*writes, _write(view, user.name, {}, user)]


def _write(
    view: ClusterView, name: str, credentials: dict[str, ScramCredential], before: User | None
) -> GuardedWrite:
    key = user_key(name)
    revision = 0 if before is None else before.revision
    guards = (view.guard, Guard(key=key, revision=revision))
    if not credentials:
        return GuardedWrite(guards=guards, deletes=(key,), why=f"user {name!r} is removed")
    stored = encode_user(User(name=name, credentials=credentials))
    return GuardedWrite(guards=guards, puts={key: stored}, why=f"user {name!r} is changed")
