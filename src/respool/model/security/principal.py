"""Who sends the requests of a connection: the principal, and how it was authenticated.

A connection has one `ClientSession` at a time, and every request of it names that session. Without a login the
principal is `User:ANONYMOUS`, as in Kafka, and ACLs may name it.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Self

from respool.model.errors import InvalidRequest

USER = "User"
# The listener of the setting `listen`.
CLIENT_LISTENER = "client"


class AuthenticationMethod(StrEnum):
    """How a connection proved its principal. The SASL mechanisms have their registered names."""

    NONE = "none"
    # By the certificate of the client.
    TLS = "TLS"
    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"
    OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True)
class Principal:
    """`User:alice`: the type of Kafka's principals, which is User for everyone who logs in, and the name."""

    name: str
    type: str = USER

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Raises:
            InvalidRequest: the text is not TYPE:NAME.
        """
        kind, colon, name = text.partition(":")
        if not colon or not kind or not name:
            raise InvalidRequest(f"{text!r} is not a principal such as User:alice")
        return cls(name, kind)

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("ANONYMOUS")


@dataclass(slots=True, kw_only=True, eq=False)
class ClientSession:
    """What a connection has proved about its client. Re-authentication replaces it; the principal stays the same.

    Attributes:
        host: the client's IP address; an IPv4 address is never written as an IPv6 one.
        listener: the name of the listener that the client connected to.
        is_encrypted: the connection uses TLS.
        is_broker: requests between brokers are believed: the client proved that it is a broker, or this cluster
            demands no proof, because its brokers share an open listener.
        token_id: the delegation token of the login, if it was one; the principal is then the token's owner.
        expires_ms: when the login expires, on the monotonic clock; None: until the connection ends.
        decisions: kept by the authorizer, for this session only.
        buckets: kept by the quotas, for this session only.
    """

    principal: Principal = ANONYMOUS
    host: str = ""
    listener: str = ""
    method: AuthenticationMethod = AuthenticationMethod.NONE
    is_encrypted: bool = False
    is_broker: bool = True
    token_id: str | None = None
    expires_ms: int | None = None
    decisions: Any = None
    buckets: Any = None

    @property
    def is_authenticated(self) -> bool:
        return self.method is not AuthenticationMethod.NONE


# The session of requests that come from no connection: the broker's own.
NO_SESSION = ClientSession()
