"""The answers of a broker without logins, ACLs and delegation tokens."""

from respool.model.security_errors import (
    DelegationTokensDisabled,
    IllegalSaslState,
    SecurityDisabled,
)

NO_ACLS = SecurityDisabled(
    "ACLs are off: every client that reaches this cluster may do everything. Switch them on with `respool acl observe` "
    "or `respool acl enforce`"
)
NO_SASL = IllegalSaslState(
    "this listener has no logins: connect without SASL (security.protocol=PLAINTEXT)"
)
NO_TOKENS = DelegationTokensDisabled("this broker has no logins, so it has no delegation tokens")
