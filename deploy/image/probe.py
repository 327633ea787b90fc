"""Ask a broker's health page: `probe.py healthz` or `probe.py readyz`. Ends with 1 and the reasons if it is not."""

import os
import ssl
import sys
import urllib.error
import urllib.request


def main() -> int:
    page = sys.argv[1] if len(sys.argv) > 1 else "healthz"
    host, _, port = os.environ.get("RESPOOL_METRICS_LISTEN", "127.0.0.1:9100").rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}.get(host, host)
    has_tls = bool(os.environ.get("RESPOOL_METRICS_CERTIFICATE_FILE"))
    # The certificate has the broker's names, which the loopback address need not be among.
    context = ssl.create_default_context() if has_tls else None
    if context is not None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    url = f"http{'s' if has_tls else ''}://{host}:{port}/{page}"
    try:
        with urllib.request.urlopen(url, timeout=4, context=context) as reply:
            return 0 if reply.status == 200 else 1
    except urllib.error.HTTPError as error:
        print(error.read().decode(errors="replace").strip(), file=sys.stderr)
    except OSError as error:
        print(f"the broker's health page does not answer: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
