"""Settings of a broker about what clients may do, and how much of it."""

from dataclasses import dataclass
from functools import cached_property

from respool.model.errors import InvalidRequest, SettingsError
from respool.model.security.acl import AccessMode
from respool.model.security.principal import Principal
from respool.model.setting_fields import check_choice, check_lows, setting


@dataclass(frozen=True, kw_only=True)
class AccessSettings:
    authorization: str = setting(
        AccessMode.OFF.value,
        "off, observe or enforce: how ACLs apply until `respool acl off|observe|enforce` sets the mode of the whole "
        "cluster.",
    )
    super_users: str = setting(
        "", "Principals that may do everything, such as User:admin; separated by semicolons."
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Allow everyone every operation on resources without ACLs."
    )
    acls_max: int = setting(50_000, "Maximum number of ACLs in the cluster.", low=1)
    quota_window_num: int = setting(
        11, "Number of quota windows that a client may use at once.", low=1
    )
    quota_window_size_seconds: int = setting(1, "Length of a quota's window.", low=1)
    quota_entities_max: int = setting(
        10_000, "Maximum number of quotas, and of clients tracked at a time.", low=1
    )
    audit_file: str = setting(
        "", "File to append the audit log to, one JSON object per line; empty: the broker's log."
    )
    audit_allowed: bool = setting(
        False, "Also write allowed operations to the audit log, not only denied ones and changes."
    )

    def __post_init__(self) -> None:
        check_lows(self)
        check_choice("authorization", self.authorization, tuple(AccessMode))
        # Raises if one of them is not a principal.
        _ = self.super_user_names

    @cached_property
    def super_user_names(self) -> frozenset[str]:
        names = [one.strip() for one in self.super_users.split(";") if one.strip()]
        try:
            return frozenset(str(Principal.parse(one)) for one in names)
        except InvalidRequest as error:
            raise SettingsError(f"super_users = {self.super_users!r}: {error}") from error
