#!/usr/bin/python3
"""weft operations serve --grpc, with grpcio, whose stubs come from the server's reflection, and with grpcurl: grpc_judge.py WEFT."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

JUDGES = pathlib.Path(os.environ.get("WEFT_TEST_JUDGES") or pathlib.Path(__file__).parents[2] / ".cache" / "judges")
sys.path.insert(0, str(JUDGES))
import grpc  # noqa: E402
from google.protobuf import descriptor_pool, message_factory  # noqa: E402
from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: E402
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase  # noqa: E402

WEFT = pathlib.Path(sys.argv[1]).resolve()
SECRET, WEAK = "secret-token-of-the-owner", "weak-token-without-scopes"
OWNER = (("authorization", f"Bearer {SECRET}"),)
SERVICE = "weft.v1.Operations"


class Stubs:
    """Methods by name, from what the server says about itself."""
    def __init__(self, channel):
        database = ProtoReflectionDescriptorDatabase(channel)
        assert {SERVICE, "grpc.health.v1.Health"} <= set(database.get_services()), database.get_services()
        service = descriptor_pool.DescriptorPool(database).FindServiceByName(SERVICE)
        for method in service.methods:
            request, reply = (message_factory.GetMessageClass(kind) for kind in (method.input_type, method.output_type))
            make = channel.unary_stream if method.server_streaming else channel.unary_unary
            setattr(self, method.name, make(f"/{SERVICE}/{method.name}", request.SerializeToString, reply.FromString))
            setattr(self, method.input_type.name, request)


def start(folder, log, *more):
    process = subprocess.Popen([WEFT, "operations", "serve", "--grpc", "127.0.0.1:0", "--token-file", folder / "tokens.json", "--device", "cpu",
                                "--allow-read", folder, "--allow-write", folder, *more], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
    before = log.tell()
    for _ in range(600):
        if found := re.findall(r"over gRPC on 127.0.0.1:(\d+)", pathlib.Path(log.name).read_text()[before:]):
            return process, int(found[-1])
        time.sleep(0.05)
    raise RuntimeError("no server")


def refusal(call, *arguments, metadata=OWNER, **options):
    try:
        answer = call(*arguments, metadata=metadata, timeout=30, **options)
        for _ in answer if hasattr(answer, "__next__") else ():
            pass
    except grpc.RpcError as error:
        details = dict(error.trailing_metadata() or ()).get("weft-error-bin")
        return error.code().name, json.loads(details)["code"] if details else None
    return "OK", None


def check(folder, channel):
    stubs = Stubs(channel)
    health = health_pb2_grpc.HealthStub(channel)
    for name in ("", SERVICE):
        assert health.Check(health_pb2.HealthCheckRequest(service=name), timeout=10).status == health_pb2.HealthCheckResponse.SERVING

    listed = stubs.Describe(stubs.DescribeRequest(), metadata=OWNER, timeout=30).specifications
    assert len(listed) > 150
    assert json.loads(stubs.Describe(stubs.DescribeRequest(operation="tensor.add"), metadata=OWNER, timeout=30).specifications[0])["name"] == "add"

    def call(operation, value, tensors=b"", **fields):
        answer = stubs.Call(stubs.CallRequest(operation=operation, input=json.dumps(value), tensors=tensors, **fields), metadata=OWNER, timeout=60)
        return json.loads(answer.envelope)["data"], answer.tensors

    # Tensors as bytes.
    section = struct.pack("<3f", 1, 2, 3)
    data, tensors = call("tensor.neg", {"x": {"$tensor": {"dtype": "f32", "shape": [3], "offset": 0}}}, section)
    assert struct.unpack_from("<3f", tensors, data["result"]["$tensor"]["offset"]) == (-1, -2, -3)
    count = 4_000_000
    data, tensors = call("tensor.neg", {"x": {"$tensor": {"dtype": "f32", "shape": [count], "offset": 0}}}, struct.pack(f"<{count}f", *range(count)))
    assert len(tensors) == 4 * count and struct.unpack_from("<f", tensors, 4 * 12345) == (-12345.0,)

    # Errors, access.
    request = stubs.CallRequest
    add = {"x": 1, "y": 2}
    for message, metadata, status, code in [
            (request(operation="tensor.add", input=json.dumps(add)), (), "UNAUTHENTICATED", "UNAUTHENTICATED"),
            (request(operation="tensor.add", input=json.dumps(add)), (("authorization", "Bearer x"),), "UNAUTHENTICATED", "UNAUTHENTICATED"),
            (request(operation="tensor.add", input=json.dumps(add)), OWNER + OWNER, "UNAUTHENTICATED", "UNAUTHENTICATED"),
            (request(operation="tensor.add", input=json.dumps(add)), (("authorization", f"Bearer {WEAK}"),), "PERMISSION_DENIED", "ACCESS_DENIED"),
            (request(operation="tensor.none", input="{}"), OWNER, "NOT_FOUND", "OPERATION_NOT_FOUND"),
            (request(operation="tensor.add", input="{}"), OWNER, "INVALID_ARGUMENT", "VALIDATION_ERROR"),
            (request(operation="tensor.add", input="{"), OWNER, "INVALID_ARGUMENT", "VALIDATION_ERROR"),
            (request(operation="tensor.neg", input='{"x": {"$tensor": {"dtype": "f32", "shape": [9], "offset": 0}}}', tensors=b"1234"), OWNER, "INVALID_ARGUMENT", "VALIDATION_ERROR"),
            (request(operation="tensor.neg", input='{"x": {"$tensor": {"dtype": "f32", "shape": [1], "offset": 18446744073709551615}}}', tensors=b"1234"), OWNER, "INVALID_ARGUMENT", "VALIDATION_ERROR"),
            (request(operation="tensor.softmax", input='{"x": 1, "axis": 9}'), OWNER, "FAILED_PRECONDITION", "SHAPE_ERROR"),
            (request(operation="tensor.neg", input='{"x": 1}', session="none"), OWNER, "FAILED_PRECONDITION", "NO_SESSION")]:
        assert refusal(stubs.Call, message, metadata=metadata) == (status, code), (message, status, refusal(stubs.Call, message, metadata=metadata))
    refused = 0
    operations = [json.loads(text) for text in listed]
    for each in operations[:: max(1, len(operations) // 30)]:
        for metadata in ((), (("authorization", ""),), (("authorization", "Bearer"),), (("authorization", SECRET),), (("authorization", f"Basic {SECRET}"),), (("authorization", f"Bearer {SECRET[:-1]}"),), (("authorization", f"Bearer {SECRET}x"),)):
            assert refusal(stubs.Call, request(operation=f"{each['namespace']}.{each['name']}", input="{}"), metadata=metadata)[0] == "UNAUTHENTICATED"
            refused += 1
    assert refused >= 200
    raw = channel.unary_unary(f"/{SERVICE}/Call")
    for damaged in (b"\xff", b"\x0a\xff", b"\x0a\x05ab", b"\x0b", b"\x00\x00", b"\x08\x01", b"\x0a" + b"\x80" * 11, b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"):
        assert refusal(raw, damaged)[0] == "INVALID_ARGUMENT", damaged

    # Handles live as long as their session.
    hold = stubs.Hold(stubs.HoldRequest(session="mine"), metadata=OWNER)
    next(hold)
    assert refusal(stubs.Hold, stubs.HoldRequest(session="mine")) == ("FAILED_PRECONDITION", "SESSION_EXISTS")
    data, tensors = call("tensor.add", {"x": 1, "y": 2}, keep_tensors=True, session="mine")
    handle = {"$tensor": {"handle": data["result"]["$tensor"]["handle"]}}
    assert not tensors
    data, tensors = call("tensor.neg", {"x": handle})
    assert len(call("handle.list", {})[0]["handles"]) == 1
    hold.cancel()
    for _ in range(200):
        if not call("handle.list", {})[0]["handles"]:
            break
        time.sleep(0.02)
    else:
        raise AssertionError("a session that has ended keeps its tensors")

    # Streams: flow control, cancellation, a deadline, Abort.
    (folder / "text.txt").write_text("row, row, row your boat, gently down the stream\n" * 200)
    run, _ = call("training.start", {"data": str(folder / "text.txt"), "out": str(folder / f"run{time.monotonic_ns()}"), "preset": "tiny", "seconds": 600, "log_every": 1})
    observe = stubs.CallRequest(operation="training.observe", input=json.dumps(run), request_id="watch")
    stream = stubs.Subscribe(observe, metadata=OWNER)
    events = [json.loads(next(stream).envelope)["data"]["event"] for _ in range(3)]
    assert events[0] == "begin", events
    assert refusal(stubs.Subscribe, observe)[1] == "VALIDATION_ERROR", "the request id is in use"
    stream.cancel()
    for _ in range(200):  # the call ends, so its id is free
        if not stubs.Abort(stubs.AbortRequest(request_id="watch"), metadata=OWNER, timeout=10).aborted:
            break
        time.sleep(0.02)
    else:
        raise AssertionError("a cancelled call goes on")
    begun = time.monotonic()
    try:
        for _ in stubs.Subscribe(observe, metadata=OWNER, timeout=0.5):
            pass
        raise AssertionError("no deadline")
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED and time.monotonic() - begun < 20
    time.sleep(0.2)
    codes = []
    watcher = threading.Thread(target=lambda: codes.append(refusal(stubs.Subscribe, observe)))
    watcher.start()
    for _ in range(400):
        if stubs.Abort(stubs.AbortRequest(request_id="watch"), metadata=OWNER, timeout=10).aborted:
            break
        time.sleep(0.02)
    watcher.join(30)
    assert codes == [("CANCELLED", "ABORTED")], codes
    call("training.stop", run)
    return len(listed)


def grpcurl(port, *arguments):
    program = shutil.which("grpcurl") or (str(JUDGES / "bin" / "grpcurl") if (JUDGES / "bin" / "grpcurl").exists() else None)
    if not program:
        return print("grpcurl was not found: the test of it is left out")
    def ask(*more):
        done = subprocess.run([program, *arguments, *more], capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout + done.stderr
    address = f"127.0.0.1:{port}"
    assert SERVICE in ask(address, "list")[1]
    code, text = ask("-H", f"authorization: Bearer {SECRET}", "-d", json.dumps({"operation": "tensor.neg", "input": json.dumps({"x": {"$tensor": {"dtype": "f32", "shape": [1], "data": "AACAPw=="}}})}),
                     address, f"{SERVICE}/Call")
    assert code == 0 and json.loads(text)["tensors"] == "AACAvw==", text
    code, text = ask("-d", '{"operation": "tensor.neg"}', address, f"{SERVICE}/Call")
    assert code != 0 and "Unauthenticated" in text, text
    return None


def main(folder):
    (folder / "tokens.json").write_text(json.dumps({"tokens": [{"token": SECRET, "id": "owner", "scopes": ["*"], "resources": {"model:*": ["*"]}}, {"token": WEAK, "id": "weak"}]}))
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with open(folder / "log", "a+") as log:
        process, port = start(folder, log)
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}", options) as channel:
                count = check(folder, channel)
            grpcurl(port, "-plaintext")
        finally:
            process.terminate()
        assert process.wait(30) == 0, (folder / "log").read_text()[-2000:]

        # TLS, with a certificate that clients must know, and then one that they must have.
        run = lambda *command: subprocess.run(["openssl", *command], check=True, capture_output=True, cwd=folder)
        run("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", "key.pem", "-out", "certificate.pem")
        certificate, key = (folder / "certificate.pem").read_bytes(), (folder / "key.pem").read_bytes()
        process, port = start(folder, log, "--certificate", folder / "certificate.pem", "--key", folder / "key.pem", "--client-ca", folder / "certificate.pem")
        try:
            credentials = grpc.ssl_channel_credentials(certificate, key, certificate)
            with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options) as channel:
                stubs = Stubs(channel)
                assert json.loads(stubs.Call(stubs.CallRequest(operation="tensor.add", input='{"x": 1, "y": 2}'), metadata=OWNER, timeout=30).envelope)
            empty = lambda data: data
            for wrong in (grpc.insecure_channel(f"127.0.0.1:{port}"), grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials()),
                          grpc.secure_channel(f"127.0.0.1:{port}", grpc.ssl_channel_credentials(certificate))):
                with wrong:
                    assert refusal(wrong.unary_unary(f"/{SERVICE}/Call", empty, empty), b"")[0] == "UNAVAILABLE"
            grpcurl(port, "-cacert", str(folder / "certificate.pem"), "-cert", str(folder / "certificate.pem"), "-key", str(folder / "key.pem"))
        finally:
            process.terminate()
        assert process.wait(30) == 0
    text = (folder / "log").read_text()
    assert not re.search(f"{SECRET}|{WEAK}|Bearer", text), "a token in the log"
    print(count, "operations")


with tempfile.TemporaryDirectory() as scratch:
    main(pathlib.Path(scratch))
