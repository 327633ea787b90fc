"""ssl.principal.mapping.rules: the first rule that matches the whole subject wins; none refuses."""

import pytest

from respool.model.errors import SettingsError
from respool.model.security.principal_mapping import PrincipalMapping

SUBJECT = "CN=Broker-1,OU=kafka,O=Example,C=DE"
KAFKAS = (
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/, RULE:^CN=(.*?),OU=(.*?),O=(.*?),C=(.*?)$/$1@$2/L, "
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L, DEFAULT"
)


def name(rules: str, subject: str = SUBJECT) -> str | None:
    return PrincipalMapping.parse("ssl_principal_mapping_rules", rules).name_of(subject)


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ("DEFAULT", SUBJECT),
        ("RULE:^CN=([^,]*),.*$/$1/", "Broker-1"),
        ("RULE:^CN=([^,]*),.*$/$1/L", "broker-1"),
        ("RULE:^CN=([^,]*),.*$/$1/U", "BROKER-1"),
        ("RULE:CN=([^,]*)/$1/", None),
        ("RULE:CN=([^,]*)/$1/,DEFAULT", SUBJECT),
        ("RULE:.*O=(.*?),C=(..)/$2\\/$1/", "DE/Example"),
        ("RULE:.*/fixed/", "fixed"),
        ("RULE:.*()/$1/", None),
        (KAFKAS, "broker-1@kafka"),
    ],
)
def test_rules_are_applied_in_order(rules: str, expected: str | None) -> None:
    assert name(rules) == expected


@pytest.mark.parametrize(
    "rules",
    [
        "",
        " ",
        "default",
        "RULE:",
        "RULE:a/b",
        "RULE:a/b/X",
        "RULE:(/b/",
        "RULE:a/$1/",
        "RULE:a/b/ DEFAULT",
        "RULE:(a+)+/b/",
        "RULE:(a*)*/b/",
        "RULE:" + "a" * 600 + "/b/",
    ],
)
def test_rules_that_cannot_be_used_are_refused_at_the_start(rules: str) -> None:
    with pytest.raises(SettingsError, match="ssl_principal_mapping_rules"):
        name(rules)


def test_an_endless_subject_is_refused() -> None:
    assert name("DEFAULT", "CN=" + "a" * 5_000) is None
