"""Parses the addresses of etcd: `etcd = "10.0.0.1:2379, https://etcd-2.example:2379"` -> complete URLs."""

from urllib.parse import urlsplit

from respool.model.errors import SettingsError

DEFAULT_PORT = 2379


def parse_endpoints(text: str, *, is_tls: bool) -> tuple[str, ...]:
    """Split at commas; `is_tls` decides about an endpoint without http or https in front.

    Raises:
        SettingsError: an endpoint is not an address, or is repeated.
    """
    urls = [_parse(part.strip(), is_tls=is_tls) for part in text.split(",") if part.strip()]
    for url in urls:
        if urls.count(url) > 1:
            raise SettingsError(f"etcd = {text!r} has {url} twice")
    return tuple(urls)


def host_of(url: str) -> str:
    host = urlsplit(url).hostname
    assert host
    return host


def _parse(endpoint: str, *, is_tls: bool) -> str:
    whole = endpoint if "://" in endpoint else f"{'https' if is_tls else 'http'}://{endpoint}"
    try:
        parts = urlsplit(whole)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or port == 0 or parts.scheme not in {"http", "https"}:
        raise _no_address(endpoint)
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise _no_address(endpoint)
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}:{port or DEFAULT_PORT}"


def _no_address(endpoint: str) -> SettingsError:
    # The part before an @ may contain a password.
    shown = endpoint.rpartition("@")[2]
    return SettingsError(
        f"etcd: {shown!r} is not HOST:PORT or https://HOST:PORT; several are separated by commas"
    )
