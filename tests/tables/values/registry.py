"""A schema registry in the test's process, with Confluent's interface."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Registry:
    """Answers from `schemas`; `status` other than 200 stands for one that is broken."""

    def __init__(self) -> None:
        self.by_id: dict[int, dict[str, Any]] = {}
        self.by_subject: dict[str, dict[str, Any]] = {}
        self.status = 200
        self.requests: list[str] = []
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.requests.append(self.path)
                parts = self.path.strip("/").split("/")
                found = (
                    registry.by_id.get(int(parts[2]))
                    if parts[0] == "schemas"
                    else registry.by_subject.get(parts[1])
                )
                status = registry.status if found else 404
                body = b"<html>" if registry.status == 299 else json.dumps(found or {}).encode()
                self.send_response(200 if status == 299 else status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def add(self, schema_id: int, kind: str, text: str, **more: Any) -> None:
        self.by_id[schema_id] = {"schemaType": kind, "schema": text, **more}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
