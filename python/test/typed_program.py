"""A program that mypy and pyright check against the stubs. It is not run."""
from typing import Any

import weft
from weft import nn, operations, optim


class Net(nn.Module):
    def __init__(self) -> None:
        self.first = nn.Linear(2, 3)

    def forward(self, x: weft.Tensor) -> weft.Tensor:
        y: weft.Tensor = self.first(x)
        return y.relu().softmax(axis=-1)


def main() -> None:
    x: weft.Tensor = weft.tensor([[1.0, 2.0]])
    y: weft.Tensor = (x * 2 + 1 - x / 3) @ x.T
    shape: tuple[int, ...] = y.shape
    total: weft.Tensor = weft.sum(y, axes=0, keepdims=True)
    values, places = x.sort(axis=1, descending=True)[:2]
    net = Net()
    optimizer = optim.AdamW(net, 1e-3)

    @weft.compile
    def step(inputs: weft.Tensor, rate: float) -> weft.Tensor:
        loss: weft.Tensor = net(inputs).sum()
        optimizer.step(weft.grad(loss, net.parameters()), rate)
        return loss

    loss: weft.Tensor = step(x, 0.1)
    slope: weft.Tensor = weft.grad(loss, x)
    slopes: list[weft.Tensor] = weft.grad(loss, [x, x])
    array: Any = slope.numpy()
    with weft.no_grad():
        v = weft.Variable(x)
        v.assign([[0.0, 0.0]])
    kind: weft.dtype = x.dtype
    y2, pull = weft.vjp(lambda v: v * 2, x)
    pulled: weft.Tensor = pull(y2)
    bent: weft.Tensor = weft.hessian(lambda v: v.sum(), pulled)
    rows: Any = weft.vmap(weft.grad(lambda v: v.sum()))(x)
    ctc: weft.Tensor = nn.ctc(bent, x, x, x, reduction="sum")
    handle: weft.HookHandle = weft.register_hook(v, lambda gradient: None)
    module_handle: nn.ModuleHookHandle = net.register_forward_hook(lambda module, given, output: output * 2)
    mixed: weft.Tensor = nn.Mixture(4, 8, 3).run(x).balance_loss
    weft.onnx.save("net.onnx", net, x, inputs=["x"])
    outputs: dict[str, weft.Tensor] = weft.onnx.load("net.onnx").run({"x": x})
    embedded: weft.Tensor = weft.llm.load("model.gguf", cache="q8").embed(["a"], pooling="last")
    photo: weft.Tensor = weft.image.resize(weft.image.read("a.png"), 224, 224, "lanczos")
    shares: weft.Tensor = weft.vision.load_encoder("clip").embed_images([photo], normalize=False)
    stream = weft.speech.load_transcriber("whisper").stream(weft.audio.load("talk.mp3").resample(16000), language="de")
    moments: list[float] = [segment.begin for segment in stream]
    subtitles: str = stream.result().to_srt()
    spoken: weft.audio.Sound = weft.speech.load_voice("voice").speak("hello")
    real, imaginary = weft.audio.stft(spoken.samples, size=400)
    with weft.memory.open("m.metatensor", 3) as notes:
        matches: list[weft.memory.Match] = notes.search(embedded, top_k=3) if notes.add("a text", embedded) else []
    edits: list[dict[str, Any]] = weft.trees.Model(weft.trees.element("Tanh")).render(weft.trees.element("Relu"))
    exchange = operations.Exchange(allow_read=["."])

    @exchange.register("text.repeat", scopes=["text"])
    def repeat(text: str, times: int, context: operations.Context) -> str:
        caller: operations.Identity | None = context.identity
        return text * times + (caller.id if caller else "")

    answers: list[Any] = list(exchange.subscribe("text.repeat", {"text": "ha"}, identity=operations.Identity("me", ["text"])))
    pending: operations.PendingCall = exchange.start("text.repeat", {"text": repeat.__name__}, timeout=1.5)
    with operations.connect("http://localhost:1", token="t") as remote:
        known: list[str] = remote.list()
    print(answers, pending.result(timeout=1), pending.abort(), known)
    with weft.detect_anomaly():
        agrees: bool = weft.gradcheck(weft.sin, x).agrees
    print(rows, ctc, handle, module_handle, mixed, outputs, embedded, agrees)
    print(shape, total, values, places, slopes, array, kind, float(loss), x[0, :, None].shape, weft.float32 == kind)


main()
