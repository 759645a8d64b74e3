"""The step of bench_tune in PyTorch: torch_tune.py MODEL ROWS CONTEXT f32|bf16|f16 keep|recompute. Prints "MS ms NAME" a way.

A decoder of Llama's kind of the shape, random weights, adapters of rank 16 beside all products of the layers, AdamW on the adapters.
"""
import sys
import time

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

SHAPES = {  # layers, width, heads, key heads, intermediate, vocabulary
    "smollm2-135m": (30, 576, 9, 3, 1536, 49152),
    "qwen2-0.5b": (24, 896, 14, 2, 4864, 151936),
    "llama-3.2-1b": (16, 2048, 32, 8, 8192, 128256),
    "llama-3.1-8b": (32, 4096, 32, 8, 14336, 128256),
}
RANK, SCALE = 16, 2.0


class Adapted(torch.nn.Module):
    def __init__(self, inputs, outputs, dtype):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(outputs, inputs, dtype=dtype) * inputs**-0.5, requires_grad=False)
        self.a = torch.nn.Parameter(torch.randn(RANK, inputs) * inputs**-0.5)
        self.b = torch.nn.Parameter(torch.zeros(outputs, RANK))

    def forward(self, x):
        return F.linear(x, self.weight) + F.linear(F.linear(x, self.a), self.b) * SCALE


class Layer(torch.nn.Module):
    def __init__(self, width, heads, kv, wide, dtype):
        super().__init__()
        self.heads, self.kv, self.dim = heads, kv, width // heads
        sizes = {"q": (width, width), "k": (width, kv * self.dim), "v": (width, kv * self.dim), "o": (width, width), "gate": (width, wide), "up": (width, wide), "down": (wide, width)}
        for name, (inputs, outputs) in sizes.items():
            setattr(self, name, Adapted(inputs, outputs, dtype))
        self.norm1, self.norm2 = torch.nn.RMSNorm(width), torch.nn.RMSNorm(width)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        h = self.norm1(x)
        q, k, v = (getattr(self, n)(h).view(b, t, -1, self.dim).transpose(1, 2) for n in "qkv")

        def turned(y):
            first, second = y.chunk(2, -1)
            return (torch.cat((first * cos - second * sin, second * cos + first * sin), -1)).to(y.dtype)

        y = F.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True, enable_gqa=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def main(model, rows, context, precision, keep):
    layers, width, heads, kv, wide, vocabulary = SHAPES[model.split(":")[0]]
    rows, context, again = int(rows), int(context), keep == "recompute"
    kind = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}[precision]
    torch.manual_seed(0)
    torch.set_default_device("cuda")
    torch.backends.cuda.matmul.allow_tf32 = False
    table = torch.randn(vocabulary, width, dtype=kind)
    head = torch.randn(vocabulary, width, dtype=kind) * width**-0.5
    stack = torch.nn.ModuleList(Layer(width, heads, kv, wide, kind) for _ in range(layers))
    norm = torch.nn.RMSNorm(width)
    for module in [*stack.modules(), norm]:
        if isinstance(module, torch.nn.RMSNorm):
            module.weight.requires_grad = False
    trained = [p for p in stack.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    angle = torch.outer(torch.arange(context).float(), 10000.0 ** -(torch.arange(0, width // heads, 2).float() / (width // heads)))
    cos, sin = angle.cos(), angle.sin()
    tokens = torch.randint(vocabulary, (rows, context + 1))
    scaler = torch.amp.GradScaler(enabled=precision == "f16")

    def loss_of(tokens):
        with torch.autocast("cuda", kind, enabled=precision != "f32"):
            x = F.embedding(tokens[:, :-1], table).float()
            for layer in stack:
                x = checkpoint(layer, x, cos, sin, use_reentrant=False) if again else layer(x, cos, sin)
            return F.cross_entropy(F.linear(norm(x), head).float().flatten(0, 1), tokens[:, 1:].flatten())

    def step(loss_of):
        optimizer.zero_grad()
        scaler.scale(loss_of(tokens)).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        scaler.step(optimizer)
        scaler.update()

    for name in ("eager", "layers compiled"):
        try:
            if name != "eager":
                for layer in stack:
                    layer.compile()
            function = loss_of
            for _ in range(3):
                step(function)
            best = 1e9
            for _ in range(10):
                torch.cuda.synchronize()
                start = time.perf_counter()
                step(function)
                torch.cuda.synchronize()
                best = min(best, time.perf_counter() - start)
            print(f"{1e3 * best:.2f} ms PyTorch {torch.__version__.split('+')[0]}, {name}", flush=True)
        except Exception as error:  # compiled needs a compiler of C
            print(f"{name}: {str(error)[:120]}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[1:])
