"""What tests of imports share: a small service of Python on a thread, and the command that imports it."""
import http.server
import json
import pathlib
import subprocess
import sys
import threading
import unittest

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
TOKEN = "a-token-of-this-test"


def weft(*arguments):
    return subprocess.run([WEFT, "operations", *arguments], capture_output=True, text=True, timeout=60)


class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, body, kind="application/json"):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def body(self):
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, *_):
        pass


class ImportTest(unittest.TestCase):
    """Serves `handler` at cls.host."""
    handler = Handler

    @classmethod
    def setUpClass(cls):
        service = http.server.ThreadingHTTPServer(("127.0.0.1", 0), cls.handler)
        threading.Thread(target=service.serve_forever, daemon=True).start()
        cls.addClassCleanup(service.server_close)
        cls.addClassCleanup(service.shutdown)
        cls.host = f"127.0.0.1:{service.server_port}"
