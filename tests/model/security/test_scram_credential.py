"""What is stored of passwords."""

import pytest

from respool.model.security.scram_credential import (
    ScramCredential,
    User,
    name_problem,
    salted_password,
    stand_in,
)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_credential_knows_its_password_only(mechanism: str) -> None:
    made = ScramCredential.from_password(mechanism, "pencil", salt=b"salt", iterations=4_096)
    assert made.has_password("pencil")
    assert not made.has_password("Pencil")
    assert not made.has_password("")
    salted = salted_password(mechanism, "pencil", salt=b"salt", iterations=4_096)
    assert made == ScramCredential.from_salted(mechanism, salted, salt=b"salt", iterations=4_096)


def test_no_password_matches_a_stand_in() -> None:
    one = stand_in(b"secret", "SCRAM-SHA-512", "bob")
    assert one == stand_in(b"secret", "SCRAM-SHA-512", "bob")
    assert one.salt != stand_in(b"other", "SCRAM-SHA-512", "bob").salt
    assert not one.has_password("")


def test_plain_is_compared_with_the_stronger_hash() -> None:
    made = {
        name: ScramCredential.from_password(name, "p", salt=b"s", iterations=4_096)
        for name in ("SCRAM-SHA-256", "SCRAM-SHA-512")
    }
    assert User(name="a", credentials=made).any_credential().mechanism == "SCRAM-SHA-512"


@pytest.mark.parametrize("name", ["", "a" * 256, "a\nb", "a\0b", "ä", "\x7f"])
def test_names_that_no_user_can_have(name: str) -> None:
    assert name_problem(name) is not None


@pytest.mark.parametrize("name", ["a", "a,b=c", "a b", "CN=x/y", "a" * 255])
def test_odd_names_that_a_user_can_have(name: str) -> None:
    assert name_problem(name) is None
