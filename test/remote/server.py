"""A NATS server with JetStream for a test: with nats_server() as url."""
import contextlib
import json
import pathlib
import shutil
import subprocess
import tempfile
import time


@contextlib.contextmanager
def nats_server(*arguments):
    program = shutil.which("nats-server") or "/usr/sbin/nats-server"
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([program, "-a", "127.0.0.1", "-p", "-1", "-js", "-sd", folder, "--ports_file_dir", folder, *arguments],
                                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield address(pathlib.Path(folder))
        finally:
            process.terminate()
            process.wait(10)


def address(folder):
    """The URL, once the server has written its file of ports."""
    for _ in range(400):
        for path in folder.glob("*.ports"):
            with contextlib.suppress(ValueError, KeyError, IndexError):
                return json.loads(path.read_text())["nats"][0]
        time.sleep(0.025)
    raise RuntimeError("nats-server did not begin")
