"""Errors of logins, users, ACLs and delegation tokens in replies to clients; see `errors.py` for the families."""

from respool.model.errors import RequestError


class UnsupportedSaslMechanism(RequestError):
    """The broker has no logins by this mechanism."""

    code = 33


class IllegalSaslState(RequestError):
    """A login where none is possible: this listener has no SASL."""

    code = 34


class SecurityDisabled(RequestError):
    """The broker does not authorize requests, so it has no ACLs."""

    code = 54


class TopicAuthorizationFailed(RequestError):
    """The client has not the right to do this with the topic, which may not even exist."""

    code = 29


class GroupAuthorizationFailed(RequestError):
    """The client has not the right to do this with the group, which may not even exist."""

    code = 30


class ClusterAuthorizationFailed(RequestError):
    """The client has not the right to do this with the cluster."""

    code = 31


class DelegationTokenAuthorizationFailed(RequestError):
    """The client has not the right to do this with delegation tokens."""

    code = 65


class ThrottlingQuotaExceeded(RequestError):
    """The client has used up its quota of changes; it may try again after the reply's throttle time."""

    code = 89
    retriable = True


class DelegationTokensDisabled(RequestError):
    """The broker has no delegation tokens."""

    code = 61


class CredentialNotFound(RequestError):
    """The user has no such credential."""

    code = 91


class CredentialNamedTwice(RequestError):
    """The request names a user twice."""

    code = 92
