"""The part of the Hub's API that pushing and pulling use, on loopback, with files in memory."""

import base64
import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

COMMIT = "c0ffee" * 6 + "abcd"


class Stub(ThreadingHTTPServer):
    """Contents by file name, by repository; and the path and authorisation of every POST."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, dict[str, bytes]] = {}
        self.posts: list[tuple[str, str | None]] = []
        self.address = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Stub  # pyright: ignore[reportIncompatibleVariableOverride] - the only server it answers for

    def log_message(self, format, *args):
        pass

    def answer(self, content, *, status=200, headers=()):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {
            "Content-Length": str(len(body)),
            "X-Repo-Commit": COMMIT,
            **dict(headers),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def missing(self, code):
        self.answer({"error": "not found"}, status=404, headers={"X-Error-Code": code})

    def do_POST(self):
        path = urlsplit(self.path).path
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append((path, self.headers.get("Authorization")))
        name = "/".join(path.split("/")[3:5])
        if path == "/api/repos/create":
            wanted = json.loads(content)
            name = f"{wanted['organization']}/{wanted['name']}"
            self.server.repositories.setdefault(name, {})
            self.answer({"url": f"{self.server.address}/{name}"})
        elif path.endswith("validate-yaml"):
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in path:
            paths = [each["path"] for each in json.loads(content)["files"]]
            self.answer(
                {"files": [{"path": each, "uploadMode": "regular", "shouldIgnore": False} for each in paths]}
            )
        else:
            self.commit(name, content)

    def commit(self, name, content):
        for line in map(json.loads, content.splitlines()):
            if line["key"] == "file":
                self.server.repositories[name][line["value"]["path"]] = base64.b64decode(
                    line["value"]["content"]
                )
        self.answer({"commitUrl": f"{self.server.address}/{name}/commit/{COMMIT}", "commitOid": COMMIT})

    def do_GET(self):
        path = urlsplit(self.path).path
        if path.startswith("/api/models/"):
            self.listing(path)
            return
        owner, name, _, _, file = path[1:].split("/", 4)
        content = self.server.repositories.get(f"{owner}/{name}", {}).get(file)
        if content is None:
            self.missing("EntryNotFound")
        else:
            self.answer(content, headers={"ETag": f'"{hashlib.sha1(content).hexdigest()}"'})

    do_HEAD = do_GET  # noqa: N815 - what http.server calls

    def listing(self, path):
        files = self.server.repositories.get("/".join(path.split("/")[3:5]))
        if files is None:
            self.missing("RepoNotFound")
        elif "/tree/" in path:
            self.answer([
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in files.items()
            ])  # fmt: skip
        else:
            self.answer({"id": "x", "sha": COMMIT, "siblings": []})


@contextmanager
def hub():
    """A running stub."""
    with Stub() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
