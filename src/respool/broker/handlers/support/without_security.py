"""The answers of a broker without logins and ACLs."""

from respool.model.security.security_errors import IllegalSaslState, SecurityDisabled

NO_ACLS = SecurityDisabled(
    "ACLs are off: every client that reaches this cluster may do everything. Switch them on with `respool acl observe` "
    "or `respool acl enforce`"
)
NO_SASL = IllegalSaslState(
    "this listener has no logins: connect without SASL (security.protocol=PLAINTEXT)"
)
