"""A hub of models on this machine, which speaks the protocol of the public one, and fails as it is told."""
import hashlib
import http.server
import json
import re
import socket
import threading
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha256(content):
    return hashlib.sha256(content).hexdigest()


def git_hash(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class Repository:
    """Files by name. Those that end in .gguf or .safetensors are large ones, which the hub sends elsewhere."""

    def __init__(self, files, commit=COMMIT, gated=False):
        self.files, self.commit, self.gated = dict(files), commit, gated
        self.extra = []  # entries of the list that have no file
        self.hashes = True  # whether the list has them

    def is_large(self, name):
        return name.endswith((".gguf", ".safetensors", ".onnx"))

    def listing(self, name):
        siblings = []
        for file, content in self.files.items():
            entry = {"rfilename": file}
            if self.hashes:
                entry |= {"size": len(content), "blobId": git_hash(content)}
                if self.is_large(file):
                    entry["lfs"] = {"sha256": sha256(content), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return {"id": name, "sha": self.commit, "private": False, "gated": self.gated, "siblings": siblings + self.extra}


    def tree(self):
        """The list in the form that the official client asks for."""
        entries = []
        for file, content in self.files.items():
            entry = {"type": "file", "path": file, "oid": git_hash(content), "size": len(content)}
            if self.is_large(file):
                entry["lfs"] = {"oid": sha256(content), "size": len(content), "pointerSize": 134}
            entries.append(entry)
        return entries


class Request:
    def __init__(self, handler):
        self.method, self.path, self.headers = handler.command, handler.path, dict(handler.headers)


class Server(http.server.ThreadingHTTPServer):
    """`faults`: (what the path contains, a function of the handler) in the order in which they happen, each once; one that gives False
    does not apply, and stays."""

    daemon_threads = True
    # A server that a test stops must not wait for clients that it cut off.
    block_on_close = False

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories, self.requests, self.faults, self.pages = {}, [], [], {}
        self.cdn, self.token, self.near = None, "hf_secret", []
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def fail(self, part, fault):
        self.faults.append((part, fault))

    def seen(self, part, method="GET"):
        return [r for r in self.requests if part in r.path and r.method == method]

    def handle_error(self, *_):
        """Clients end connections: that is what the tests are about."""

    def stop(self):
        self.shutdown()
        self.server_close()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        self.server.requests.append(Request(self))
        for i, (part, fault) in enumerate(self.server.faults):
            if part in self.path:
                del self.server.faults[i]
                if fault(self) is not False:
                    return
                break
        path, _, query = self.path.partition("?")
        path = urllib.parse.unquote(path)
        if path in self.server.pages:
            return self.send_content(self.server.pages[path], {"ETag": f'"{git_hash(self.server.pages[path])}"'})
        if path == "/api/models":
            return self.send_json([{"id": name} for name in self.server.near])
        if match := re.fullmatch(r"/api/models/([^/]+(?:/[^/]+)?)/revision/(.+)", path):
            return self.send_listing(*match.groups())
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/[^/]+", path):
            return self.send_json(self.server.repositories[match[1]].tree())
        if match := re.fullmatch(r"/([^/]+(?:/[^/]+)?)/resolve/([^/]+)/(.+)", path):
            return self.send_file(*match.groups())
        self.send_text(404, "no such page")

    def may_read(self, repository):
        if not repository.gated:
            return True
        if self.headers.get("Authorization") == f"Bearer {self.server.token}":
            return True
        self.send_text(401, "gated", {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to this model is restricted."})
        return False

    def send_listing(self, name, revision):
        repository = self.server.repositories.get(name)
        if not repository:
            return self.send_text(404, "", {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"})
        if not self.may_read(repository):
            return None
        if revision not in ("main", repository.commit):
            return self.send_text(404, "", {"X-Error-Code": "RevisionNotFound", "X-Error-Message": "Invalid rev id"})
        return self.send_json(repository.listing(name))

    def send_file(self, name, revision, file):
        repository = self.server.repositories.get(name)
        if not repository or file not in repository.files:
            return self.send_text(404, "", {"X-Error-Code": "EntryNotFound"})
        if not self.may_read(repository):
            return None
        content = repository.files[file]
        headers = {"X-Repo-Commit": repository.commit}
        if not repository.is_large(file):
            return self.send_content(content, {**headers, "ETag": f'"{git_hash(content)}"'})
        headers |= {"X-Linked-ETag": f'"{sha256(content)}"', "X-Linked-Size": str(len(content))}
        if not self.server.cdn:
            return self.send_content(content, {**headers, "ETag": f'"{sha256(content)}"'})
        place = f"/store/{sha256(content)}"
        self.server.cdn.pages[place] = content
        return self.send_text(302, "Found", {**headers, "Location": self.server.cdn.url + place})

    def send_json(self, value):
        self.send_text(200, json.dumps(value), {"Content-Type": "application/json"})

    def send_text(self, status, text, headers=None):
        raw = text.encode()
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(raw))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(raw)

    def send_content(self, content, headers, cut=None, ranges=True):
        first = 0
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and ranges and "Content-Range" not in headers and self.headers.get("If-Range", headers.get("ETag")) == headers.get("ETag"):
            first = int(asked[1])
            if first >= len(content):
                return self.send_text(416, "", {"Content-Range": f"bytes */{len(content)}"})
            headers = {**headers, "Content-Range": f"bytes {first}-{len(content) - 1}/{len(content)}"}
        self.send_response(206 if "Content-Range" in headers else 200)
        for key, value in {**headers, "Content-Length": str(len(content) - first), "Accept-Ranges": "bytes"}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "HEAD":
            return None
        self.wfile.write(content[first:cut])
        if cut is not None:
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        return None
