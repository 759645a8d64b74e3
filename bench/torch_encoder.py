#!/usr/bin/env python3
"""The peer of bench_encoder. usage: torch_encoder.py LAYERS WIDTH HEADS INNER LENGTHS THREADS [DEVICE [f32|f16]]

Prints milliseconds for the embeddings of texts of these lengths (a list with commas), and again the same: texts are sorted by length and
go through torch.nn.TransformerEncoder in batches of 32, padded to their longest, as sentence-transformers does; rows are means."""
import sys

import torch
from torch_timing import best_ms

layers, width, heads, inner = map(int, sys.argv[1:5])
lengths = sorted(map(int, sys.argv[5].split(",")), reverse=True)
threads, device = int(sys.argv[6]), sys.argv[7] if len(sys.argv) > 7 else "cpu"
type_ = torch.float16 if sys.argv[8:] == ["f16"] else torch.float32
torch.set_num_threads(threads)
torch.backends.cuda.matmul.allow_tf32 = False
layer = torch.nn.TransformerEncoderLayer(width, heads, inner, activation="gelu", batch_first=True)
model = torch.nn.TransformerEncoder(layer, layers).to(device, type_).eval()
words, places = (torch.nn.Embedding(n, width).to(device, type_) for n in (1000, 512))
norm = torch.nn.LayerNorm(width).to(device, type_)


def embed():
    rows = []
    with torch.inference_mode():
        for first in range(0, len(lengths), 32):
            batch = lengths[first:first + 32]
            tokens = torch.randint(0, 1000, (len(batch), batch[0]), device=device)
            hidden = torch.arange(batch[0], device=device)[None] >= torch.tensor(batch, device=device)[:, None]
            x = norm(words(tokens) + places.weight[:batch[0]])
            x = model(x, src_key_padding_mask=hidden if hidden.any() else None)
            x = x.masked_fill(hidden[..., None], 0)
            rows.append(torch.nn.functional.normalize(x.float().sum(1) / (~hidden).sum(1, keepdim=True)))
        return torch.cat(rows).cpu()


ms = best_ms(embed, device)
print(f"{ms:.3f} {ms:.3f}")
