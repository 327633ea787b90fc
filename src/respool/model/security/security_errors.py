"""Errors of logins, users, ACLs and delegation tokens in replies to clients; see `errors.py` for the families."""

from respool.model.errors import RequestError


class UnsupportedSaslMechanism(RequestError):
    """The broker does not offer this login mechanism."""

    code = 33


class IllegalSaslState(RequestError):
    """A login out of place: this listener has no SASL, or the client has already logged in."""

    code = 34


class SaslAuthenticationFailed(RequestError):
    """Authentication failed: invalid credentials, or a mechanism that the user does not have."""

    code = 58


class SecurityDisabled(RequestError):
    """The broker does not authorize requests, so it has no ACLs."""

    code = 54


class TopicAuthorizationFailed(RequestError):
    """The client is not authorized to do this with the topic, which may not even exist."""

    code = 29


class GroupAuthorizationFailed(RequestError):
    """The client is not authorized to do this with the group, which may not even exist."""

    code = 30


class ClusterAuthorizationFailed(RequestError):
    """The client is not authorized to do this with the cluster."""

    code = 31


class DelegationTokenAuthorizationFailed(RequestError):
    """The client is not authorized to do this with delegation tokens."""

    code = 65


class ThrottlingQuotaExceeded(RequestError):
    """The client has used up its quota of changes; it may retry after the reply's throttle time."""

    code = 89
    retriable = True


class DelegationTokensDisabled(RequestError):
    """The broker has no delegation tokens."""

    code = 61


class TokenNotFound(RequestError):
    """There is no such delegation token."""

    code = 62


class TokenOwnerMismatch(RequestError):
    """Only the owner, the requester or a renewer may do this with the delegation token."""

    code = 63


class TokenRequestNotAllowed(RequestError):
    """Only clients that authenticated by a login or a certificate, and not by a token, may manage delegation tokens."""

    code = 64


class TokenAuthorizationFailed(RequestError):
    """The principal may not make delegation tokens for this owner."""

    code = 65


class TokenExpired(RequestError):
    """The delegation token has expired."""

    code = 66


class InvalidPrincipalType(RequestError):
    """Delegation tokens are for principals of the type User."""

    code = 67


class CredentialNotFound(RequestError):
    """The user has no such credential."""

    code = 91


class CredentialNamedTwice(RequestError):
    """The request names a user twice."""

    code = 92


class UnacceptableCredential(RequestError):
    """The credential cannot be stored: its name, its salt or its iterations."""

    code = 93
