"""Small models with random weights, written plainly in PyTorch: what people export. Each maker gives (module, arguments, axes that may change)."""
import math

import torch
import torch.nn.functional as F
from torch import nn

MODELS = {}


def model(make):
    MODELS[make.__name__] = make
    return make


def image(channels=3, size=32, batch=2):
    return torch.randn(batch, channels, size, size)


def words(batch=2, length=9, count=50):
    return torch.randint(1, count, (batch, length))


class Block(nn.Module):
    def __init__(self, width, out, stride):
        super().__init__()
        self.a, self.n = nn.Conv2d(width, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.b, self.m = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.skip = nn.Sequential(nn.Conv2d(width, out, 1, stride, bias=False), nn.BatchNorm2d(out)) if stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.skip(x) + self.m(self.b(F.relu(self.n(self.a(x))))))


@model
def resnet():
    stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, Block(16, 16, 1), Block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)), (image(),), {"x": {0: "batch"}}


class Inverted(nn.Module):
    """Of MobileNet v3: widens, convolves each channel, weighs the channels, narrows."""

    def __init__(self, width, inner):
        super().__init__()
        self.up, self.each = nn.Conv2d(width, inner, 1, bias=False), nn.Conv2d(inner, inner, 5, 1, 2, groups=inner, bias=False)
        self.n, self.m, self.k = nn.BatchNorm2d(inner), nn.BatchNorm2d(inner), nn.BatchNorm2d(width)
        self.squeeze, self.excite, self.down = nn.Conv2d(inner, 8, 1), nn.Conv2d(8, inner, 1), nn.Conv2d(inner, width, 1, bias=False)

    def forward(self, x):
        y = F.hardswish(self.m(self.each(F.hardswish(self.n(self.up(x))))))
        y = y * F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(y, 1)))))
        return x + self.k(self.down(y))


@model
def mobilenet():
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.Hardswish(), Inverted(16, 32), Inverted(16, 24), nn.ReLU6(), nn.AvgPool2d(2, ceil_mode=True)), (image(),), {}


class Shuffle(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.Conv2d(3, 16, 3, 2, 1)

    def forward(self, x):
        left, right = self.c(x).chunk(2, 1)
        y = torch.cat([left, F.relu(self.b(F.relu(self.a(right))))], 1)
        n, c, h, w = y.shape
        return y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


@model
def shufflenet():
    return Shuffle(), (image(),), {"x": {0: "batch"}}


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1), nn.Conv2d(16, 32, 3, padding=1)
        self.up, self.d, self.e = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(24, 2, 1)

    def forward(self, x):
        a = F.relu(self.a(x))
        b = F.relu(self.b(F.max_pool2d(a, 2)))
        c = F.relu(self.c(F.max_pool2d(b, 2)))
        y = F.relu(self.d(torch.cat([self.up(c), b], 1)))
        return self.e(torch.cat([F.interpolate(y, size=a.shape[2:], mode="bilinear", align_corners=True), a], 1))


@model
def unet():
    return UNet(), (image(),), {"x": {0: "batch", 2: "height", 3: "width"}}


@model
def super_resolution():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv2d(1, 16, 5, padding=2), nn.Tanh(), nn.Conv2d(16, 8, 3, padding=1), nn.PReLU(8), nn.Conv2d(8, 9, 3, padding=1), nn.PixelShuffle(3))

        def forward(self, x):
            return self.net(x).clamp(0, 1) + F.interpolate(x, scale_factor=3, mode="bicubic", align_corners=False)
    return Network(), (image(1, 12),), {"x": {0: "batch", 2: "height", 3: "width"}}


class Attention(nn.Module):
    def __init__(self, width, heads, source=None):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(width, width), nn.Linear(source or width, width), nn.Linear(source or width, width)
        self.out, self.heads = nn.Linear(width, width), heads

    def split(self, x):
        return x.view(x.shape[0], -1, self.heads, x.shape[2] // self.heads).transpose(1, 2)

    def forward(self, x, source=None, mask=None, past=None):
        source = x if source is None else source
        q, k, v = self.split(self.q(x)), self.split(self.k(source)), self.split(self.v(source))
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        y = torch.softmax(scores if mask is None else scores + mask, -1) @ v
        return self.out(y.transpose(1, 2).reshape(x.shape[0], -1, x.shape[2])), k, v


class Layer(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.attention, self.n, self.m = Attention(width, heads), nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x, mask=None, past=None):
        y, k, v = self.attention(self.n(x), mask=mask, past=past)
        x = x + y
        return x + self.down(F.gelu(self.up(self.m(x)))), k, v


@model
def bert():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.norm = nn.Embedding(50, 32), nn.Embedding(64, 32), nn.LayerNorm(32)
            self.layers, self.pooler = nn.ModuleList(Layer() for _ in range(2)), nn.Linear(32, 32)

        def forward(self, ids, attention_mask):
            x = self.norm(self.words(ids) + self.places(torch.arange(ids.shape[1])))
            mask = (1.0 - attention_mask[:, None, None, :].float()) * -10000.0
            for layer in self.layers:
                x = layer(x, mask)[0]
            return x, torch.tanh(self.pooler(x[:, 0]))
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return Encoder(), (words(), mask), {"ids": {0: "batch", 1: "time"}, "attention_mask": {0: "batch", 1: "time"}}


@model
def gpt():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.norm = nn.Embedding(50, 32), nn.Embedding(64, 32), nn.LayerNorm(32)
            self.a, self.b = Layer(), Layer()

        def forward(self, ids, k0, v0, k1, v1):
            past, now = k0.shape[2], ids.shape[1]
            x = self.words(ids) + self.places(torch.arange(past, past + now))
            seen = torch.ones(now, past + now, dtype=torch.bool).tril(past) if not torch.onnx.is_in_onnx_export() else \
                torch.arange(past, past + now)[:, None] >= torch.arange(past + now)[None]
            mask = torch.where(seen, torch.tensor(0.0), torch.tensor(torch.finfo(torch.float32).min))
            x, k0, v0 = self.a(x, mask, (k0, v0))
            x, k1, v1 = self.b(x, mask, (k1, v1))
            return self.norm(x) @ self.words.weight.t(), k0, v0, k1, v1
    cache = [torch.randn(2, 4, 5, 8) for _ in range(4)]
    return Decoder(), (words(2, 3), *cache), {"ids": {1: "time"}, **{name: {2: "past"} for name in ("k0", "v0", "k1", "v1")}}


@model
def vision_transformer():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches, self.first, self.places = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, 1, 32)), nn.Parameter(torch.randn(1, 17, 32))
            self.layer, self.head = Layer(), nn.Linear(32, 10)

        def forward(self, x):
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
            return self.head(self.layer(x)[0][:, 0])
    return Network(), (image(),), {"x": {0: "batch"}}


@model
def shifted_windows():
    class Network(nn.Module):
        """A block of Swin."""

        def __init__(self):
            super().__init__()
            self.patches, self.layer = nn.Conv2d(3, 32, 4, 4), Layer()

        def forward(self, x):
            x = torch.roll(self.patches(x).permute(0, 2, 3, 1), (-2, -2), (1, 2))
            n, h, w, c = x.shape
            x = x.view(n, h // 4, 4, w // 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
            x = self.layer(x)[0].view(n, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5).reshape(n, h, w, c)
            return torch.roll(x, (2, 2), (1, 2))
    return Network(), (image(),), {"x": {0: "batch"}}


@model
def diffusion():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.n, self.time = nn.Conv2d(4, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Linear(16, 16)
            self.norm, self.cross, self.down = nn.LayerNorm(16), Attention(16, 2, 12), nn.Conv2d(16, 32, 3, 2, 1)
            self.up, self.out = nn.Conv2d(32, 16, 3, padding=1), nn.Conv2d(32, 4, 3, padding=1)

        def forward(self, x, step, text):
            angles = step.float()[:, None] * torch.exp(torch.arange(8) * (-math.log(10000) / 8))
            x = self.a(x)
            x = x + F.silu(self.n(x)) + self.time(F.silu(torch.cat([angles.sin(), angles.cos()], -1)))[:, :, None, None]
            rows = x.flatten(2).transpose(1, 2)
            x = (rows + self.cross(self.norm(rows), text)[0]).transpose(1, 2).reshape(x.shape)
            y = self.up(F.interpolate(F.silu(self.down(x)), scale_factor=2.0, mode="nearest"))
            return self.out(torch.cat([y, x], 1))
    return Network(), (image(4, 16), torch.tensor([10, 500]), torch.randn(2, 5, 12)), {"x": {0: "batch"}, "step": {0: "batch"}, "text": {0: "batch"}}


@model
def decoder_of_images():
    return nn.Sequential(nn.ConvTranspose2d(8, 16, 4), nn.ConvTranspose2d(16, 16, 4, 2, 1), nn.GroupNorm(4, 16), nn.SiLU(),
                         nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(16, 8, 3, padding=1), nn.InstanceNorm2d(8, affine=True), nn.ELU(),
                         nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1), nn.Sigmoid()), (torch.randn(2, 8, 1, 1),), {}


@model
def spatial_transformer():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.theta = nn.Linear(3 * 256, 6)

        def forward(self, x):
            theta = self.theta(x.flatten(1)).view(-1, 2, 3) * 0.3
            y, z = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
            places = torch.stack([z, y, torch.ones_like(y)], -1).view(1, -1, 3) @ theta.transpose(1, 2)
            return F.grid_sample(x, places.view(-1, 16, 16, 2), align_corners=False)
    return Network(), (image(3, 16),), {}


@model
def styled():
    class Network(nn.Module):
        """A convolution of StyleGAN 2, whose weight depends on the input."""

        def __init__(self):
            super().__init__()
            self.weight, self.style = nn.Parameter(torch.randn(8, 8, 3, 3)), nn.Linear(16, 8)

        def forward(self, x, z):
            w = self.weight[None] * self.style(z)[:, None, :, None, None]
            w = w * torch.rsqrt((w ** 2).sum((2, 3, 4), keepdim=True) + 1e-8)
            y = F.conv2d(x.reshape(1, -1, 8, 8), w.reshape(-1, 8, 3, 3), padding=1, groups=2).reshape(2, 8, 8, 8)
            return F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=False)
    return Network(), (image(8, 8), torch.randn(2, 16)), {}


@model
def tagger():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.lstm, self.out = nn.Embedding(50, 16), nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True), nn.Linear(24, 5)

        def forward(self, ids):
            return self.out(self.lstm(self.words(ids))[0]).log_softmax(-1)
    return Network(), (words(3),), {"ids": {0: "batch", 1: "time"}}


@model
def packed_sequences():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.gru = nn.Embedding(50, 16), nn.GRU(16, 12, batch_first=True, bidirectional=True)

        def forward(self, ids, lengths):
            y, h = self.gru(nn.utils.rnn.pack_padded_sequence(self.words(ids), lengths, batch_first=True))
            return nn.utils.rnn.pad_packed_sequence(y, batch_first=True)[0], h
    return Network(), (words(3), torch.tensor([9, 6, 4])), {"ids": {1: "time"}}


@model
def translator():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.encoder, self.cell, self.out = nn.Embedding(50, 16), nn.GRU(16, 16, batch_first=True), nn.GRUCell(16, 16), nn.Linear(16, 50)

        def forward(self, ids):
            h = self.encoder(self.words(ids))[1][0]
            word, all_logits = torch.zeros(ids.shape[0], dtype=torch.long), []
            for _ in range(4):
                h = self.cell(self.words(word), h)
                all_logits.append(self.out(h))
                word = all_logits[-1].argmax(-1)
            return torch.stack(all_logits, 1)
    return Network(), (words(),), {}


@model
def dilated_sounds():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Conv1d(8, 16, 3, padding=2 ** i, dilation=2 ** i) for i in range(3))
            self.first, self.mix, self.up = nn.Conv1d(1, 8, 1), nn.Conv1d(8, 8, 1), nn.ConvTranspose1d(8, 1, 8, 4, 2)

        def forward(self, x):
            x = self.first(x)
            for layer in self.layers:
                a, b = layer(x).chunk(2, 1)
                x = x + self.mix(a.tanh() * b.sigmoid())
            return self.up(F.leaky_relu(x, 0.1)).tanh()
    return Network(), (torch.randn(1, 1, 32),), {"x": {0: "batch", 2: "samples"}}


@model
def graph_network():
    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

        def pass_on(self, x, edges, weights):
            x, source, target = weights(x), edges[0], edges[1]
            degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones_like(target, dtype=torch.float32)).clamp(min=1)
            message = x[source] / (degree[source] * degree[target]).sqrt().unsqueeze(1)
            return torch.zeros_like(x).scatter_add(0, target.unsqueeze(1).expand_as(message), message)

        def forward(self, x, edges):
            return self.pass_on(self.pass_on(x, edges, self.a).relu(), edges, self.b).log_softmax(-1)
    return Network(), (torch.randn(10, 8), torch.randint(0, 10, (2, 30))), {}


@model
def detector():
    class Network(nn.Module):
        """Boxes with scores above a limit: their number depends on the input."""

        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.SiLU(), nn.Conv2d(16, 27, 3, 2, 1))
            self.register_buffer("anchors", torch.tensor([[10.0, 13], [16, 30], [33, 23]]))

        def forward(self, x):
            y = self.body(x)
            n, _, h, w = y.shape
            y = y.view(n, 3, 9, h, w).permute(0, 1, 3, 4, 2).sigmoid()
            rows, columns = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
            centres = (y[..., :2] * 2 + torch.stack([columns, rows], -1) - 0.5) * 4
            sizes = (y[..., 2:4] * 2) ** 2 * self.anchors.view(1, 3, 1, 1, 2)
            boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], -1).reshape(n, -1, 4)
            scores, kinds = (y[..., 4:5] * y[..., 5:]).reshape(n, -1, 4).max(-1)
            keep = scores[0] > 0.27
            best, order = scores[0][keep].topk(5)
            return boxes[0][keep][order], best, kinds[0][keep][order]
    return Network(), (image(batch=1),), {}


@model
def many_functions():
    class Network(nn.Module):
        def forward(self, x, mask, places):
            y = (x.cumsum(1) + torch.roll(x, 2, 1) + x.flip(1) + x.tril() + torch.where(mask, x, torch.zeros(()))).masked_fill(mask, -1.0)
            parts = F.unfold(x.view(1, 1, 8, 12), 3, padding=1)
            return (y, *torch.topk(y, 3), *torch.sort(y, descending=True), torch.einsum("bi,bj->bij", x, y), x.gather(1, places), F.one_hot(places, 12).float(),
                    torch.nonzero(mask), x[mask], x.norm(dim=1), x.std(1) + x.var(1, unbiased=False), parts, torch.repeat_interleave(x, 2, dim=0),
                    F.adaptive_avg_pool1d(x[None], 6), F.pad(x[None], (2, 3), "reflect"), F.pad(x[None, None], (1, 2, 3, 4), "replicate"), x.logsumexp(1),
                    torch.cdist(x[:, :4], x[:, 4:8]), x.index_select(1, places[0]), F.mish(x) + F.softplus(x) + F.selu(x) + F.hardtanh(x),
                    torch.remainder(x, 0.3), torch.fmod(x, 0.3), torch.round(x * 3), x.argmax(1), x.prod(1), (x > 0).any(1), (x > 0).all(1), x.max(1).values)
    return Network(), (torch.randn(8, 12), torch.rand(8, 12) > 0.5, torch.randint(0, 12, (8, 4))), {}
