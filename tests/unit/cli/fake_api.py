"""A Kubernetes API of canned answers, on the loopback, with a kubeconfig that leads to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

Body = dict[str, Any]
Answer = tuple[int, Body]


@dataclass
class FakeApi:
    """Answers by path; a path that is not there is a 404, one in ``forbidden`` a 403.

    Attributes:
        posts: what a POST to a path answers, from its body.
    """

    objects: dict[str, Body] = field(default_factory=dict)
    posts: dict[str, Callable[[Body], Answer]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)

    def answer(self, method: str, path: str, body: Body) -> Answer:
        self.asked.append(f"{method} {path}")
        if path in self.forbidden:
            return 403, {"message": f"{path} is forbidden"}
        if method == "POST" and path in self.posts:
            return self.posts[path](body)
        if method == "GET" and path in self.objects:
            return 200, self.objects[path]
        return 404, {"message": f"{path} not found"}


@contextmanager
def serving(api: FakeApi, folder: Path) -> Iterator[Path]:
    """Serve it meanwhile; the path of a kubeconfig."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer("GET")

        def do_POST(self) -> None:
            self._answer("POST")

        def _answer(self, method: str) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            status, content = api.answer(method, urlsplit(self.path).path, body)
            payload = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "here", "namespace": "prod"}}],
        "clusters": [
            {"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
        ],
        "users": [],
    }
    config["contexts"][0]["context"]["user"] = "nobody"  # type: ignore[index]
    config["users"] = [{"name": "nobody", "user": {}}]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    try:
        yield path
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
