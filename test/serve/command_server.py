"""A server of the command for a test, and requests to it."""
import http.client
import json
import pathlib
import re
import signal
import subprocess
import time


class CommandServer:
    """`command`, with its log in the file `log`. It is ready when the log has the pattern `ready`, whose match is `found`."""

    def __init__(self, command, log, ready=None, cwd=None):
        self.log = pathlib.Path(log)
        with open(self.log, "w") as out:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=out, cwd=cwd)
        self.found = self.wait_for(ready) if ready else None

    def text(self):
        return self.log.read_text()

    def wait_for(self, pattern):
        for _ in range(1200):
            if found := re.search(pattern, self.text()):
                return found
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise RuntimeError(f"no server: {self.text()}")

    def stop(self):
        """Exit code and log."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60), self.text()


def ask(port, method, path, body=None, token=None, headers=None):
    """Status, headers and answer of a request; a body that is not text or bytes, and an answer that says so, are JSON."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    headers = dict(headers or {})
    if token:
        headers["Authorization"] = f"Bearer {token}"
    if body is not None:
        headers.setdefault("Content-Type", "application/json")
        body = body if isinstance(body, (str, bytes)) else json.dumps(body)
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    is_json = response.getheader("Content-Type", "").startswith("application/json")
    return response.status, response.headers, json.loads(data) if is_json else data.decode(errors="replace")
