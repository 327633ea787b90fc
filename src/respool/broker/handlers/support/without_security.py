"""The answers of a broker without logins, ACLs and delegation tokens."""

from respool.model.security_errors import (
    DelegationTokensDisabled,
    IllegalSaslState,
    SecurityDisabled,
)

NO_ACLS = SecurityDisabled(
    "this broker does not authorize requests, so it has no ACLs: every client that reaches it may do everything"
)
NO_SASL = IllegalSaslState(
    "this listener has no logins: connect without SASL (security.protocol=PLAINTEXT)"
)
NO_TOKENS = DelegationTokensDisabled("this broker has no logins, so it has no delegation tokens")
