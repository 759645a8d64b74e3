"""What the transformers library makes of tiny random voices: make_vits.py [--check] writes vits.json for vits_test.cpp.

Durations and samples, computed in f64 with the noise that Weft draws. Made with transformers 4.46.3, torch 1.13 and NumPy 1.24.
"""
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
CHARACTERS = " abcdefghijklmnopqrstuvwxyz'-"
BASE = dict(vocab_size=len(CHARACTERS) + 2, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, window_size=2, ffn_dim=24, flow_size=8,
            spectrogram_bins=9, upsample_initial_channel=16, upsample_rates=[4, 2], upsample_kernel_sizes=[8, 4], resblock_kernel_sizes=[3, 5],
            resblock_dilation_sizes=[[1, 3], [1, 2]], duration_predictor_flow_bins=6, duration_predictor_num_flows=3, noise_scale_duration=0.6, duration_predictor_filter_channels=12,
            prior_encoder_num_flows=2, prior_encoder_num_wavenet_layers=3, posterior_encoder_num_wavenet_layers=1, wavenet_kernel_size=3,
            wavenet_dilation_rate=2, sampling_rate=8000, pad_token_id=0)
CASES = {
    "drawn": ({}, None),
    "predicted": (dict(use_stochastic_duration_prediction=False, hidden_act="gelu", ffn_kernel_size=4, use_bias=False), None),
    "speakers": (dict(num_speakers=3, speaker_embedding_size=6, speaking_rate=1.25), 2),
    "speakers-predicted": (dict(num_speakers=3, speaker_embedding_size=6, use_stochastic_duration_prediction=False, wavenet_dilation_rate=1), 1),
}
TEXT, SEED = "it's a weft-loom", 7


def philox(key, counters):
    """Philox 4x32-10: words [n, 4] of counters [n, 4]."""
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    k = [np.uint64(key & 0xFFFFFFFF), np.uint64(key >> 32)]
    c = [counters[:, i].astype(np.uint64) for i in range(4)]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> shift) ^ c[1] ^ k[0], b & mask, (a >> shift) ^ c[3] ^ k[1], a & mask]
        k = [(k[0] + np.uint64(0x9E3779B9)) & mask, (k[1] + np.uint64(0xBB67AE85)) & mask]
    return np.stack(c, 1)


def noise(count, kind):
    """As voice.cpp draws it: kind 0 for durations, 1 for latents."""
    counters = np.zeros((count, 4), np.uint64)
    counters[:, 0], counters[:, 1], counters[:, 3] = np.arange(count), kind, 3
    words = philox(SEED, counters).astype(np.float64)
    return np.sqrt(-2 * np.log((words[:, 0] + 1) * 2.0**-32)) * np.cos(2 * np.pi * words[:, 1] * 2.0**-32)


def random_values(name, shape):
    """As vits_test.cpp makes them."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    count = int(np.prod(shape))
    counters = np.zeros((count, 4), np.uint64)
    counters[:, 0] = np.arange(count)
    is_factor = name.endswith("weight_g") or (len(shape) == 1 and name.endswith(".weight"))
    is_small = len(shape) == 1 or is_factor or name.endswith(("translate", "log_scale"))
    scale = 0.3 if is_small else 1.7 / np.sqrt(np.prod(shape[1:], dtype=np.float64))
    units = (philox(stream, counters)[:, 0] >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return ((1.0 if is_factor else 0.0) + scale * (2.0 * units - 1)).astype(np.float32).reshape(shape)


def chosen(samples):
    """The first samples, the last ones, and some between: [place, value]."""
    places = sorted({*range(40), *range(len(samples) - 40, len(samples)), *[(i * 7919) % len(samples) for i in range(200)]})
    return [[i, float(f"{samples[i]:.6f}")] for i in places]


def result_of(changes, speaker):
    config = transformers.VitsConfig(**{**BASE, **changes})
    model = transformers.VitsModel(config)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
        tensors = {key: random_values(key, value.shape) for key, value in tensors.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        saved = json.loads((folder / "config.json").read_text())
        model = transformers.VitsModel.from_pretrained(folder).double().eval()
        vocabulary = {"<pad>": 0, **{character: i + 1 for i, character in enumerate(CHARACTERS)}, "<unk>": len(CHARACTERS) + 1}
        (folder / "vocab.json").write_text(json.dumps(vocabulary))
        tokenizer = transformers.VitsTokenizer(str(folder / "vocab.json"), add_blank=True, normalize=True, phonemize=False)
    tokens = tokenizer(TEXT).input_ids
    texts = {text: tokenizer(text).input_ids for text in ("Hello, World!  (1)", " a-b ", "'tis")}
    durations = []
    drawn = torch.randn, torch.randn_like, torch.ceil, torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double  # of masks
    torch.randn = lambda *shape: torch.tensor(noise(shape[1] * shape[2], 0).reshape(shape))
    # The latents are transposed when the library draws for them.
    torch.randn_like = lambda x: torch.tensor(noise(x.numel(), 1).reshape(1, x.shape[2], x.shape[1]).transpose(0, 2, 1).copy())

    def ceil(x):
        durations.append(drawn[2](x))
        # Rounding must not decide.
        assert (x - x.round()).abs().min() > 1e-4, x
        return durations[-1]

    torch.ceil = ceil
    try:
        with torch.no_grad():
            out = model(torch.tensor([tokens]), speaker_id=speaker)
    finally:
        torch.randn, torch.randn_like, torch.ceil, torch.Tensor.float = drawn
    return {"config": saved, "speaker": speaker or 0, "tokens": tokens, "texts": texts, "vocabulary": vocabulary,
            "durations": [int(x) for x in durations[0].reshape(-1)], "samples": len(out.waveform[0]), "chosen": chosen(out.waveform[0]),
            "tensors": {key: list(value.shape) for key, value in sorted(tensors.items())}}


def main(check):
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # The library asks about a way of training that PyTorch 1.13 cannot import under Python 3.11.
    transformers.models.vits.modeling_vits.is_fsdp_managed_module = lambda module: False
    made = {name: result_of(*case) for name, case in CASES.items()}
    for name, case in made.items():
        print(name, sum(case["durations"]), "frames", case["samples"], "samples, up to", max(abs(x) for _, x in case["chosen"]))
    path = HERE / "vits.json"
    text = "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in made.items()) + "\n}\n"
    if check:
        print("the same" if path.read_text() == text else "DIFFERS")
        return path.read_text() != text
    path.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
