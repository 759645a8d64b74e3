#!/usr/bin/python3
"""weft operations serve --nats, with the official client (PyPI nats-py): nats_judge.py WEFT."""
import asyncio
import base64
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import time

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
import nats  # noqa: E402

from server import nats_server  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
SECRET, WEAK = "secret-token-of-the-owner", "weak-token-without-scopes"
AUTHORISED = {"Authorization": f"Bearer {SECRET}"}


def tensor(values):
    return {"$tensor": {"dtype": "f32", "shape": [len(values)], "data": base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()}}


def frame(value, section=b""):
    text = json.dumps(value).encode()
    head = b"WEFT" + struct.pack("<IQ", 1, len(text)) + text
    return head + bytes(-len(head) % 64) + section


def from_frame(data):
    assert data[:4] == b"WEFT", data[:100]
    version, length = struct.unpack_from("<IQ", data, 4)
    assert version == 1
    start = (16 + length + 63) // 64 * 64
    return json.loads(data[16:16 + length]), data[start:]


async def check(url, folder):
    log = open(folder / "log", "w+")
    tokens = folder / "tokens.json"
    tokens.write_text(json.dumps({"tokens": [{"token": SECRET, "id": "owner", "scopes": ["*"], "resources": {"model:*": ["*"]}}, {"token": WEAK, "id": "weak"}]}))
    workers = [subprocess.Popen([WEFT, "operations", "serve", "--nats", url, "--token-file", tokens, "--device", "cpu", "--allow-read", folder, "--allow-write", folder],
                                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log) for _ in range(2)]
    try:
        for _ in range(600):
            if (folder / "log").read_text().count("as worker") == 2:
                break
            time.sleep(0.05)
        client = await nats.connect(url)

        # Discovery, as NATS services have it.
        inbox = client.new_inbox()
        found = await client.subscribe(inbox)
        await client.publish("$SRV.PING.weft", b"", reply=inbox)
        ids = {json.loads((await found.next_msg(5)).data)["id"] for _ in range(2)}
        assert len(ids) == 2
        one = next(iter(ids))
        info = json.loads((await client.request(f"$SRV.INFO.weft.{one}", b"", 5)).data)
        assert info["type"] == "io.nats.micro.v1.info_response" and info["id"] == one
        subjects = {e["name"]: e["subject"] for e in info["endpoints"]}
        assert len(subjects) > 150 and subjects["tensor_add"] == "weft.call.tensor.add"

        # Calls as JSON, and with tensors as bytes.
        async def ask(name, value, headers=AUTHORISED, timeout=20):
            body = value if isinstance(value, bytes) else json.dumps(value).encode()
            return await client.request(f"weft.call.{name}", body, timeout, headers=headers)
        answer = await ask("tensor.add", {"x": tensor([1, 2]), "y": 3})
        assert answer.headers["Weft-Event"] == "call.responded" and answer.headers["Weft-Worker"] in ids
        data = json.loads(answer.data)["data"]["result"]["$tensor"]["data"]
        assert struct.unpack("<2f", base64.b64decode(data)) == (4, 5)
        bytes_in = struct.pack("<3f", 1, 2, 3)
        answer = await ask("tensor.neg", frame({"x": {"$tensor": {"dtype": "f32", "shape": [3], "offset": 0}}}, bytes_in))
        value, section = from_frame(answer.data)
        at = value["data"]["result"]["$tensor"]["offset"]
        assert struct.unpack_from("<3f", section, at) == (-1, -2, -3)

        # Large tensors in the object store: written and read by the official client.
        stream = client.jetstream()
        count = 2_000_000
        await ask("tensor.neg", {"x": 1})
        try:
            store = await stream.object_store("weft")
        except Exception:
            store = await stream.create_object_store("weft")
        numbers = struct.pack(f"<{count}f", *range(count))
        await store.put("input", frame({"x": {"$tensor": {"dtype": "f32", "shape": [count], "offset": 0}}}, numbers))
        answer = await ask("tensor.neg", b"", headers={**AUTHORISED, "Weft-Object": "input"})
        assert answer.headers["Weft-Event"] == "call.responded", answer.data
        result = await store.get(answer.headers["Weft-Object"])
        value, section = from_frame(result.data)
        at = value["data"]["result"]["$tensor"]["offset"]
        assert section[at:at + 4 * count] == struct.pack(f"<{count}f", *(-float(i) for i in range(count)))

        # Errors have the headers of NATS services.
        for name, value, headers, status, code in [
                ("tensor.add", {"x": 1}, AUTHORISED, "400", "VALIDATION_ERROR"), ("tensor.add", b"{", AUTHORISED, "400", "VALIDATION_ERROR"),
                ("tensor.add", b"WEFT", AUTHORISED, "400", "VALIDATION_ERROR"), ("tensor.add", frame({"x": {"$tensor": {"dtype": "f32", "shape": [9], "offset": 0}}, "y": 1}), AUTHORISED, "400", "VALIDATION_ERROR"),
                ("tensor.add", {"x": 1, "y": 2}, {"Authorization": "Bearer x"}, "401", "UNAUTHENTICATED"), ("tensor.add", {"x": 1, "y": 2}, None, "401", "UNAUTHENTICATED"),
                ("tensor.add", {"x": 1, "y": 2}, {"Authorization": f"Bearer {WEAK}"}, "403", "ACCESS_DENIED"), ("tensor.add", {"x": 1, "y": 2}, {**AUTHORISED, "Weft-Timeout": "x"}, "400", "VALIDATION_ERROR"),
                ("tensor.add", b"", {**AUTHORISED, "Weft-Object": "none"}, "500", "OBJECT_NOT_FOUND")]:
            answer = await ask(name, value, headers=headers)
            assert answer.headers["Nats-Service-Error-Code"] == status and json.loads(answer.data)["error"]["code"] == code, (name, answer.headers, answer.data)

        # A mutation with a request id runs once.
        once = {**AUTHORISED, "Weft-Request-Id": "the first of this test"}
        kept = [await ask("handle.create", {"tensor": tensor([1, 2])}, headers=once) for _ in range(4)]
        assert len({answer.data for answer in kept}) == 1 and len({answer.headers["Weft-Worker"] for answer in kept}) == 1
        assert [answer.headers.get("Weft-Repeated") for answer in kept] == [None, "1", "1", "1"]
        assert (await ask("handle.create", {"tensor": tensor([1, 2])})).data != kept[0].data

        # A worker that imports what it serves would call itself for ever.
        loop = subprocess.run([WEFT, "operations", "serve", "--nats", url, "--from", url.replace("127.0.0.1", "localhost"), "--token-file", tokens, "--token", SECRET],
                              capture_output=True, text=True, timeout=60)
        assert loop.returncode == 2 and "reach the same NATS server" in loop.stderr, loop.stderr

        # A stream, and a deadline on it.
        (folder / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 200)
        run = json.loads((await ask("training.start", {"data": str(folder / "text.txt"), "out": str(folder / "run"), "preset": "tiny", "seconds": 600, "log_every": 1})).data)["data"]
        worker = None
        for _ in range(2):  # runs belong to the worker that began them
            inbox = client.new_inbox()
            answers = await client.subscribe(inbox)
            for each in ids:
                await client.publish(f"weft.direct.{each}.training.observe", json.dumps(run).encode(), reply=inbox, headers={**AUTHORISED, "Weft-Timeout": "1"})
            events = []
            try:
                while True:
                    message = await answers.next_msg(3)
                    events.append((message.headers["Weft-Event"], message.headers["Weft-Worker"], message.data))
            except nats.errors.TimeoutError:
                pass
            errors = [json.loads(data)["error"]["code"] for event, _, data in events if event == "call.error"]
            assert sorted(errors) == ["RUN_NOT_FOUND", "TIMEOUT"], events[-3:]
            worker = {w for event, w, _ in events if event == "call.responded"}
            assert len(worker) == 1 and sum(event == "call.responded" for event, _, _ in events) > 1
        await client.request(f"weft.direct.{worker.pop()}.training.stop", json.dumps(run).encode(), 10, headers=AUTHORISED)

        # Statistics count.
        rows = []
        for each in ids:
            rows += json.loads((await client.request(f"$SRV.STATS.weft.{each}", b"", 5)).data)["endpoints"]
        assert sum(r["num_requests"] for r in rows if r["name"] == "tensor_add") >= 9
        await client.close()
    finally:
        for worker in workers:
            worker.terminate()
        codes = [worker.wait(30) for worker in workers]
    text = (folder / "log").read_text()
    assert codes == [0, 0], (codes, text[-2000:])
    assert not re.search(f"{SECRET}|{WEAK}|Bearer", text), "a token in the log"
    print(len(subjects), "operations on two workers")


with nats_server() as server_url, tempfile.TemporaryDirectory() as scratch:
    asyncio.run(asyncio.wait_for(check(server_url, pathlib.Path(scratch)), 120))
