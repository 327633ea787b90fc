"""Settings of listeners, TLS and logins. Those of one listener are in its own table: see `listener_settings.py`."""

from dataclasses import dataclass
from functools import cached_property

from respool.model.errors import SettingsError
from respool.model.security.principal import Principal
from respool.model.setting_fields import check_lows, setting
from respool.model.topic_config import DAY_MS, MIB

TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, kw_only=True)
class SecuritySettings:
    protocol: str = setting(
        "PLAINTEXT", "Protocol of listen: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."
    )
    sasl_enabled_mechanisms: str = setting(
        "SCRAM-SHA-512",
        "Login mechanisms, separated by commas: SCRAM-SHA-512, SCRAM-SHA-256, PLAIN, OAUTHBEARER.",
    )
    ssl_certificate_file: str = setting(
        "", "The broker's certificate with its chain (PEM); replaced files are noticed."
    )
    ssl_key_file: str = setting(
        "", "The certificate's private key (PEM); empty: in the certificate's file."
    )
    ssl_key_password_file: str = setting(
        "", "File with the password of the private key; empty: it has none."
    )
    ssl_ca_file: str = setting(
        "", "Authorities (PEM) that sign the certificates of clients and of other brokers."
    )
    ssl_crl_file: str = setting(
        "", "Revoked certificates (PEM) of clients; replaced files are noticed."
    )
    ssl_client_auth: str = setting(
        "none", "Whether clients present a certificate: none, requested or required."
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", "How the subject of a client's certificate becomes a user name, as in Kafka."
    )
    ssl_protocols: str = setting(
        "TLSv1.2,TLSv1.3", "TLS versions that are served, separated by commas."
    )
    inter_broker_listener_name: str = setting(
        "", "Listener that brokers of a cluster use between them; empty: the listener of listen."
    )
    inter_broker_config: str = setting(
        "",
        "File with the client properties (security.protocol, ssl.*, sasl.*) by which this broker connects to others.",
        needs_etcd=True,
    )
    broker_principals: str = setting(
        "",
        "Principals of the cluster's brokers, separated by semicolons; required if their listener authenticates.",
    )
    bootstrap_user_file: str = setting(
        "",
        "File with client properties (sasl.username, sasl.password) of a user that the broker creates when it starts, "
        "unless there is one of this name.",
    )
    connections_max_reauth_ms: int = setting(
        0,
        "Clients must log in again within this time; 0: only clients with tokens, before these expire.",
        low=0,
    )
    connection_failed_authentication_delay_ms: int = setting(
        100,
        "How long a failed login waits for its reply; twice as long with each failure from the same address.",
        low=0,
    )
    authentication_max_ms: int = setting(
        10_000, "Maximum time for the TLS handshake and the login of a connection.", low=100
    )
    sasl_server_max_receive_size: int = setting(
        524_288, "Maximum size in bytes of a request before the login.", low=1_024
    )
    strangers_max: int = setting(
        1_000,
        "Maximum number of connections that have not logged in yet; beyond it, the oldest is closed.",
        low=1,
    )
    strangers_bytes_max: int = setting(
        16 * MIB, "Memory for requests of connections that have not logged in yet.", low=65_536
    )
    tls_handshakes_per_s_max: int = setting(
        300, "Maximum number of TLS handshakes a second.", low=1
    )
    tls_handshakes_per_address_per_s_max: int = setting(
        20, "Maximum number of TLS handshakes a second from one address.", low=1
    )
    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "", "Where the identity provider publishes its keys (https), or a file: URL."
    )
    sasl_oauthbearer_expected_issuer: str = setting("", "The issuer of tokens (iss).")
    sasl_oauthbearer_expected_audience: str = setting(
        "", "Audiences (aud) of tokens for this broker, separated by commas."
    )
    sasl_oauthbearer_sub_claim_name: str = setting("sub", "The claim that is the user's name.")
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30,
        "Tolerated difference between the clocks of the identity provider and this broker.",
        low=0,
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, "How often the identity provider's keys are fetched.", low=1_000
    )
    delegation_token_secret_key_file: str = setting(
        "", "File with the key of delegation tokens, the same on every broker; empty: no tokens."
    )
    delegation_token_max_lifetime_ms: int = setting(
        7 * DAY_MS, "Maximum lifetime of a delegation token, renewals included.", low=1
    )
    delegation_token_expiry_time_ms: int = setting(
        DAY_MS, "How long a delegation token is valid unless it is renewed.", low=1
    )

    def __post_init__(self) -> None:
        check_lows(self)
        versions = self.tls_versions
        if not versions or not set(versions) <= set(TLS_VERSIONS):
            raise SettingsError(
                f"ssl_protocols = {self.ssl_protocols!r}: only TLSv1.2 and TLSv1.3 are supported"
            )
        for one in self.brokers:
            assert isinstance(one, Principal)

    @cached_property
    def tls_versions(self) -> tuple[str, ...]:
        return tuple(one.strip() for one in self.ssl_protocols.split(",") if one.strip())

    @cached_property
    def brokers(self) -> frozenset[Principal]:
        return parse_principals("broker_principals", self.broker_principals)

    @property
    def audiences(self) -> tuple[str, ...]:
        return tuple(
            one.strip() for one in self.sasl_oauthbearer_expected_audience.split(",") if one.strip()
        )

    def check_identity_provider(self, *, insecure: bool) -> None:
        """OAUTHBEARER must be configured completely.

        Raises:
            SettingsError
        """
        given = {
            "sasl_oauthbearer_jwks_endpoint_url": self.sasl_oauthbearer_jwks_endpoint_url,
            "sasl_oauthbearer_expected_issuer": self.sasl_oauthbearer_expected_issuer,
            "sasl_oauthbearer_expected_audience": "".join(self.audiences),
            "sasl_oauthbearer_sub_claim_name": self.sasl_oauthbearer_sub_claim_name,
        }
        missing = [name for name, value in given.items() if not value.strip()]
        if missing:
            raise SettingsError(
                f"OAUTHBEARER needs {', '.join(missing)}: without it, tokens from anybody would be accepted"
            )
        url = self.sasl_oauthbearer_jwks_endpoint_url
        if url.startswith("http://") and not insecure:
            raise SettingsError(
                f"sasl_oauthbearer_jwks_endpoint_url = {url!r} is not encrypted: an attacker who changes the reply "
                "can log in as anybody. Use https"
            )
        if not url.startswith(("https://", "http://", "file:///")):
            raise SettingsError(
                f"sasl_oauthbearer_jwks_endpoint_url = {url!r} is neither https:// nor file:///"
            )


def parse_principals(name: str, text: str) -> frozenset[Principal]:
    """Principals separated by semicolons: names in certificates have commas.

    Raises:
        SettingsError
    """
    found = set()
    for one in text.split(";"):
        if not one.strip():
            continue
        kind, colon, user = one.strip().partition(":")
        if not colon or not kind or not user:
            raise SettingsError(f"{name}: {one.strip()!r} is not a principal such as User:alice")
        found.add(Principal(user, kind))
    return frozenset(found)
