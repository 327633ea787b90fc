"""Names in certificates, as Java writes them: the order, the escapes, and attributes that have no name."""

import pytest
import trustme
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from respool.model.security.distinguished_name import NotACertificate, name_text, subject_of


def text(*parts: tuple[x509.ObjectIdentifier, str]) -> str:
    name = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
    return name_text(name.public_bytes())


def test_the_last_part_comes_first() -> None:
    assert (
        text(
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.ORGANIZATION_NAME, "Example"),
            (NameOID.COMMON_NAME, "broker-1"),
        )
        == "CN=broker-1,O=Example,C=DE"
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a,b", "a\\,b"),
        ("a=b", "a\\=b"),
        ("#a", "\\#a"),
        ("a#b", "a\\#b"),
        ('a"b', 'a\\"b'),
        ("a+b<c>d;e\\f", "a\\+b\\<c\\>d\\;e\\\\f"),
        (" a ", "\\ a\\ "),
        ("Müller", "Müller"),
    ],
)
def test_special_characters_are_escaped_as_java_does(value: str, written: str) -> None:
    assert text((NameOID.COMMON_NAME, value)) == f"CN={written}"


def test_attributes_without_a_name_are_written_as_hex_of_their_der() -> None:
    assert text((NameOID.EMAIL_ADDRESS, "a@b")) == "1.2.840.113549.1.9.1=#1603614062"
    assert text((NameOID.SERIAL_NUMBER, "7")) == "2.5.4.5=#130137"


def test_a_part_with_several_attributes_is_sorted() -> None:
    part = x509.RelativeDistinguishedName(
        [
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "x"),
            x509.NameAttribute(NameOID.COMMON_NAME, "y"),
        ]
    )
    assert name_text(x509.Name([part]).public_bytes()) == "CN=y+OU=x"


def test_the_subject_of_a_certificate() -> None:
    issued = trustme.CA().issue_cert("127.0.0.1", common_name="broker-1")
    [pem, *_] = issued.cert_chain_pems
    certificate = x509.load_pem_x509_certificate(pem.bytes())
    from cryptography.hazmat.primitives.serialization import Encoding

    subject = subject_of(certificate.public_bytes(Encoding.DER))
    assert subject == name_text(certificate.subject.public_bytes())
    assert "CN=broker-1" in subject.split(",")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30))
def test_a_name_is_never_mistaken_for_two_attributes(value: str) -> None:
    written = text((NameOID.COMMON_NAME, value)).removeprefix("CN=")
    plain = written.replace("\\\\", "")
    assert all(plain[at - 1] == "\\" for at, one in enumerate(plain) if one in ",+=" and at)
    assert plain[:1] not in (",", "+", "=")


@given(st.binary(max_size=60))
def test_other_bytes_are_no_certificate(data: bytes) -> None:
    with pytest.raises(NotACertificate):
        subject_of(data)
