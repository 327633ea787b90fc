"""Mistakes with users and rights, made on purpose. As `planted_bugs.py`; each with a seed that finds it."""

import hmac
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from respool.access.authorizer import Authorizer
from respool.access.principal_rules import Caller
from respool.broker.access_control import AccessControl
from respool.broker.metadata import access_changes
from respool.cluster.access.acl_requests import create_acls, delete_acls
from respool.model.security.acl import AclBinding, AclOperation, AclResource, Permission
from respool.wire.login import scram
from respool.wire.login.stage import LoginStage
from sim.planted_bugs import Plant


def decisions_outlive_the_rules(patch: pytest.MonkeyPatch) -> None:
    """A session keeps what was decided about it when the ACLs change."""
    decisions = AccessControl._decisions

    def keep(self: AccessControl, session: Any) -> Any:
        return session.decisions or decisions(self, session)

    patch.setattr(AccessControl, "_decisions", keep)


def the_first_rules_count_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A broker does not follow the ACLs in the metadata store."""
    on_image = AccessControl.on_image

    def once(self: AccessControl, image: Any, config: Any) -> None:
        if not self.is_on or len(self._acls.by_pattern) == 0:
            on_image(self, image, config)

    patch.setattr(AccessControl, "on_image", once)


def an_allow_beats_a_deny(patch: pytest.MonkeyPatch) -> None:
    def allows(
        self: Authorizer, caller: Caller, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        bit = 1 << operation
        return caller.is_super_user or any(
            rules.masks(resource, name, caller)[1] & bit for rules in caller.rules
        )

    patch.setattr(Authorizer, "allows", allows)


def every_proof_is_right(patch: pytest.MonkeyPatch) -> None:
    """Who knows a name needs no password."""
    careless = SimpleNamespace(digest=hmac.digest, compare_digest=lambda one, other: True)
    patch.setattr(scram, "hmac", careless)


def strangers_are_served(patch: pytest.MonkeyPatch) -> None:
    """What may be asked before the login is not looked at."""
    patch.setattr(LoginStage, "why_not", lambda self, key, now_ms: None)


def deletions_of_rules_are_answered_only(patch: pytest.MonkeyPatch) -> None:
    def delete(*arguments: Any, **more: Any) -> Any:
        results, _ = delete_acls(*arguments, **more)
        return results, []

    patch.setattr(access_changes, "delete_acls", delete)


def denials_are_answered_only(patch: pytest.MonkeyPatch) -> None:
    """A rule that denies is said to be created, and is not."""

    def create(view: Any, asked: Any, **more: Any) -> Any:
        allows = [
            one
            for one in asked
            if isinstance(one, AclBinding) and one.entry.permission is Permission.ALLOW
        ]
        _, writes = create_acls(view, allows, **more)
        return [None for _ in asked], writes

    patch.setattr(access_changes, "create_acls", create)


# With the seed that finds each.
ACCESS_PLANTS: Mapping[Plant, int] = {
    decisions_outlive_the_rules: 9,
    the_first_rules_count_for_ever: 7,
    an_allow_beats_a_deny: 7,
    every_proof_is_right: 7,
    strangers_are_served: 7,
    deletions_of_rules_are_answered_only: 7,
    denials_are_answered_only: 7,
}
