"""A certificate authority in a folder: it makes the certificates of brokers and clients, shows them and renews them.

    <folder>/ca.pem        the authority, which clients and brokers trust
    <folder>/ca.key        its key
    <folder>/NAME.pem      a key and its certificate, of a broker or a client

It needs the extra `secure`, and is for clusters without an authority of their own.
"""

import ipaddress
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from respool.model.errors import SettingsError
from respool.model.extras import how_to_install
from respool.node.private_file import write_private

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

AUTHORITY_NAME = "Respool authority"
CERTIFICATE_DAYS = 825
AUTHORITY_DAYS = 3_650
# The name in a certificate (X.520), and so far the name of a file.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
_RESERVED = "ca"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateDescription:
    """A certificate in the folder of an authority."""

    file: Path
    # As Kafka's rules of names see it.
    subject: str
    issuer: str
    # Host names and addresses for which it is valid.
    hosts: tuple[str, ...]
    not_before: datetime
    not_after: datetime
    is_authority: bool
    # Why clients would refuse it; None: they would not.
    problem: str | None


class LocalAuthority:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()

    @property
    def ca_file(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def key_file(self) -> Path:
        return self.folder / "ca.key"

    def file_of(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    @property
    def exists(self) -> bool:
        return self.key_file.exists() and self.ca_file.exists()

    def issue(self, name: str, hosts: Iterable[str] = (), *, days: int = CERTIFICATE_DAYS) -> Path:
        """Make a certificate with a new key for CN=`name`, and the authority first if there is none.

        Raises:
            SettingsError: the name or a host cannot be in a certificate, or a library is missing.
        """
        if not _NAME.fullmatch(name) or name == _RESERVED:
            raise SettingsError(
                f"{name!r} cannot be the name of a certificate: letters, digits and . _ @ - only, up to 64, and not "
                f"{_RESERVED!r}"
            )
        _need_library()
        self._make_folder()
        if not self.exists:
            self._make_authority()
        path = self.file_of(name)
        write_private(path, self._signed(name, tuple(hosts), days))
        return path

    def describe(self) -> list[CertificateDescription]:
        """All certificates in the folder, the authority's first.

        Raises:
            SettingsError: a library is missing, or there is no such folder.
        """
        _need_library()
        if not self.folder.is_dir():
            raise SettingsError(f"there is no folder {self.folder}")
        authority = _read_certificate(self.ca_file) if self.ca_file.exists() else None
        found = []
        for path in sorted(self.folder.glob("*.pem"), key=lambda one: (one != self.ca_file, one)):
            certificate = _read_certificate(path)
            if certificate is not None:
                found.append(_describe(path, certificate, authority))
        return found

    def renew(self, path: Path, *, days: int = CERTIFICATE_DAYS) -> CertificateDescription:
        """Replace a certificate of this authority by one with the same names, a new key and a new end.

        Raises:
            SettingsError: it is none of this authority's.
        """
        _need_library()
        authority = self._authority()
        before = _read_certificate(path)
        if before is None:
            raise SettingsError(f"{path} has no certificate")
        described = _describe(path, before, authority)
        if described.is_authority:
            raise SettingsError(
                f"{path} is the authority itself: make another in a new folder, and let clients trust both meanwhile"
            )
        if not _is_signed_by(before, authority):
            raise SettingsError(f"{path} is not of the authority in {self.folder}")
        write_private(path, self._signed(_common_name(before), described.hosts, days))
        renewed = _read_certificate(path)
        assert renewed is not None
        return _describe(path, renewed, authority)

    def _make_folder(self) -> None:
        # Both may be new: with one call the folder above would have the mode of the umask.
        os.makedirs(self.folder.parent, mode=0o700, exist_ok=True)
        os.makedirs(self.folder, mode=0o700, exist_ok=True)

    def _make_authority(self) -> None:
        from cryptography.hazmat.primitives import serialization

        if self.ca_file.exists():
            raise SettingsError(
                f"{self.ca_file} is there, and its key {self.key_file} is not: bring the key, or choose another folder"
            )
        # The key comes first: a certificate without it looks like one that was brought from elsewhere.
        if not self.key_file.exists():
            write_private(self.key_file, _private_bytes(_new_key()))
        key = self._key()
        made = _certificate(AUTHORITY_NAME, key, key, issuer=None, hosts=(), days=AUTHORITY_DAYS)
        write_private(self.ca_file, made.public_bytes(serialization.Encoding.PEM))

    def _key(self) -> "EllipticCurvePrivateKey":
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

        try:
            key = serialization.load_pem_private_key(self.key_file.read_bytes(), password=None)
        except (ValueError, TypeError) as error:
            raise SettingsError(f"{self.key_file} is no key without a password: {error}") from None
        if not isinstance(key, EllipticCurvePrivateKey):
            raise SettingsError(f"{self.key_file} is no key of this authority's kind (EC)")
        return key

    def _authority(self) -> "x509.Certificate":
        found = _read_certificate(self.ca_file) if self.ca_file.exists() else None
        if found is None or not self.key_file.exists():
            raise SettingsError(
                f"there is no authority in {self.folder}: ca.pem and ca.key are needed"
            )
        return found

    def _signed(self, name: str, hosts: Sequence[str], days: int) -> bytes:
        """A new key with its certificate (PEM)."""
        from cryptography.hazmat.primitives import serialization

        authority = self._authority()
        key = _new_key()
        made = _certificate(
            name, key, self._key(), issuer=authority.subject, hosts=hosts, days=days
        )
        return _private_bytes(key) + made.public_bytes(serialization.Encoding.PEM)


def _need_library() -> None:
    try:
        import cryptography.x509  # noqa: F401
    except ImportError:
        raise SettingsError(
            f"certificates are made with cryptography: {how_to_install('secure')}"
        ) from None


def _read_certificate(path: Path) -> "x509.Certificate | None":
    """The first certificate of a file."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())[0]
    except ValueError:
        return None


def _describe(
    path: Path, certificate: "x509.Certificate", authority: "x509.Certificate | None"
) -> CertificateDescription:
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        hosts = tuple(str(one.value) for one in names)
    except x509.ExtensionNotFound:
        hosts = ()
    try:
        basic = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        is_authority = bool(basic.ca)
    except x509.ExtensionNotFound:
        is_authority = False
    return CertificateDescription(
        file=path,
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        hosts=hosts,
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        is_authority=is_authority,
        problem=_problem(path, certificate, authority),
    )


def _problem(
    path: Path, certificate: "x509.Certificate", authority: "x509.Certificate | None"
) -> str | None:
    now = datetime.now(UTC)
    if now >= certificate.not_valid_after_utc:
        return "it has expired"
    if now < certificate.not_valid_before_utc:
        return "it is not valid yet"
    if authority is None or not _is_signed_by(certificate, authority):
        return "ca.pem did not sign it"
    if not _has_its_key(path, certificate):
        return "the key in the file does not fit"
    return None


def _is_signed_by(certificate: "x509.Certificate", authority: "x509.Certificate") -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (InvalidSignature, ValueError, TypeError):
        return False
    return True


def _has_its_key(path: Path, certificate: "x509.Certificate") -> bool:
    """False if the file has a key, and it is another one's."""
    from cryptography.hazmat.primitives import serialization

    text = path.read_bytes()
    if b"PRIVATE KEY" not in text or b"ENCRYPTED" in text:
        return True
    key = serialization.load_pem_private_key(text, password=None)
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return key.public_key().public_bytes(*form) == certificate.public_key().public_bytes(*form)


def _common_name(certificate: "x509.Certificate") -> str:
    from cryptography.x509.oid import NameOID

    return str(certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value)


def _private_bytes(key: "EllipticCurvePrivateKey") -> bytes:
    from cryptography.hazmat.primitives import serialization

    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _new_key() -> "EllipticCurvePrivateKey":
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _certificate(
    subject: str,
    key: "EllipticCurvePrivateKey",
    signer: "EllipticCurvePrivateKey",
    *,
    issuer: "x509.Name | None",
    hosts: Iterable[str],
    days: int,
) -> "x509.Certificate":
    """A certificate for these hosts; of an authority if there is no issuer."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    own = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(own)
        .issuer_name(issuer or own)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.BasicConstraints(ca=issuer is None, path_length=0 if issuer is None else None),
            critical=True,
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()),
            critical=False,
        )
        .add_extension(_usage(is_authority=issuer is None), critical=True)
    )
    names = [_general_name(one) for one in hosts]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(signer, SHA256())


def _usage(*, is_authority: bool) -> "x509.KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> "x509.GeneralName":
    """
    Raises:
        SettingsError
    """
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError as error:
        raise SettingsError(f"{host!r} cannot be a host of a certificate: {error}") from None
