#!/usr/bin/python3
"""The same seed gives the same initial weights in Python as in scripts, which use the classes of C++: same_weights.py WEFT"""
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import weft
from weft import nn

# name, in a script, in Python
LAYERS = [
    ("linear", "nn.linear(5, 7)", lambda: nn.Linear(5, 7)),
    ("no_bias", "nn.linear(5, 7, { bias: false })", lambda: nn.Linear(5, 7, bias=False)),
    ("embedding", "nn.embedding(11, 4)", lambda: nn.Embedding(11, 4)),
    ("layer_norm", "nn.layerNorm(6)", lambda: nn.LayerNorm(6)),
    ("rms_norm", "nn.rmsNorm(6)", lambda: nn.RMSNorm(6)),
    ("batch_norm", "nn.batchNorm(6)", lambda: nn.BatchNorm(6)),
    ("group_norm", "nn.groupNorm(2, 6)", lambda: nn.GroupNorm(2, 6)),
    ("conv1d", "nn.conv1d(4, 6, 3)", lambda: nn.Conv1d(4, 6, 3)),
    ("conv2d", "nn.conv2d(4, 6, [3, 2], { groups: 2 })", lambda: nn.Conv2d(4, 6, (3, 2), groups=2)),
    ("conv3d", "nn.conv3d(2, 3, 3)", lambda: nn.Conv3d(2, 3, 3)),
    ("transposed1d", "nn.convTranspose1d(4, 6, 3)", lambda: nn.ConvTranspose1d(4, 6, 3)),
    ("transposed2d", "nn.convTranspose2d(4, 6, 3)", lambda: nn.ConvTranspose2d(4, 6, 3)),
    ("prelu", "nn.prelu(3)", lambda: nn.PReLU(3)),
    ("rnn", "nn.rnn(3, 5)", lambda: nn.RNN(3, 5)),
    ("gru", "nn.gru(3, 5, { layers: 2 })", lambda: nn.GRU(3, 5, num_layers=2)),
    ("lstm", "nn.lstm(3, 5, { layers: 2, bidirectional: true })", lambda: nn.LSTM(3, 5, num_layers=2, bidirectional=True)),
    ("gpt", "nn.gpt({ vocabulary: 32, context: 8, layers: 2, heads: 2, width: 16 })",
     lambda: nn.GPT(vocabulary=32, context=8, layers=2, heads=2, width=16)),
    ("nested", "nn.sequential(nn.linear(3, 4), nn.sequential(nn.linear(4, 4), nn.layerNorm(4)))",
     lambda: nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4)))),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        lines = ["import { manualSeed, nn } from 'weft';"]
        for title, source, _ in LAYERS:
            lines.append(f"manualSeed(7); const {title} = {source}; {title}.parameters().forEach((p) => p.value); {title}.save('{folder}/{title}.safetensors');")
        (folder / "layers.js").write_text("\n".join(lines))
        subprocess.run([sys.argv[1], "run", folder / "layers.js", "--allow-write", folder, "--device", "cpu"], check=True, timeout=100)
        wrong = []
        for title, _, make in LAYERS:
            weft.manual_seed(7)
            mine = {key: np.asarray(value) for key, value in make().state_dict().items()}
            theirs = {key: np.asarray(value) for key, value in weft.io.load(folder / f"{title}.safetensors").items()}
            if sorted(mine) != sorted(theirs):
                wrong.append(f"{title}: names {sorted(mine)} and {sorted(theirs)}")
                continue
            wrong += [f"{title}: {key} differs" for key in mine if mine[key].shape != theirs[key].shape or mine[key].tobytes() != theirs[key].tobytes()]
        if wrong:
            raise SystemExit("\n".join(wrong))
        print(f"{len(LAYERS)} layers have the same weights")


main()
