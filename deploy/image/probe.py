"""Ask a broker's health page: `probe.py healthz` or `probe.py readyz`. Ends with 1 and the reasons if it is not."""

import os
import sys
import urllib.error
import urllib.request


def main() -> int:
    page = sys.argv[1] if len(sys.argv) > 1 else "healthz"
    host, _, port = os.environ.get("RESPOOL_METRICS_LISTEN", "127.0.0.1:9100").rpartition(":")
    host = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]", "": "127.0.0.1"}.get(host, host)
    try:
        with urllib.request.urlopen(f"http://{host}:{port}/{page}", timeout=4) as reply:
            return 0 if reply.status == 200 else 1
    except urllib.error.HTTPError as error:
        print(error.read().decode(errors="replace").strip(), file=sys.stderr)
    except OSError as error:
        print(f"the broker's health page does not answer: {error}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
