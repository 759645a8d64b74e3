"""What the transformers library makes of tiny random Moonshines: make_moonshine.py [--check] writes moonshine.json for moonshine_test.cpp.

States of the encoder, teacher-forced logits and greedy tokens of a sound. The library computes in f64. Weights follow from the names of
tensors. Made with transformers 5.23.0, torch 2.15 and NumPy 2.4.
"""
import importlib.util
import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<unk>", "<s>", "</s>"]
START, END = 257, 258
COMMON = dict(vocab_size=256 + len(SPECIAL), hidden_size=36, intermediate_size=40, encoder_num_hidden_layers=2, decoder_num_hidden_layers=3, encoder_num_attention_heads=3,
              decoder_num_attention_heads=3, max_position_embeddings=48, decoder_start_token_id=START, bos_token_id=START, eos_token_id=END, pad_token_id=None)
CASES = {
    # As the published models are: heads of 12, of which 10 turn, padded to 16 inside of the library.
    "tiny": ("16.", 0.5, dict(pad_head_dim_to_multiple_of=8, partial_rotary_factor=0.9)),
    # An odd number of channels that turn, biases, another base, a head of its own.
    "base": ("1.", 2, dict(hidden_size=32, encoder_num_attention_heads=2, decoder_num_attention_heads=2, partial_rotary_factor=0.62, rope_theta=500.0, attention_bias=True,
                         encoder_hidden_act="relu", tie_word_embeddings=False)),
}

spec = importlib.util.spec_from_file_location("whisper_make", HERE / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def random_values(name, shape, table, scale):
    """As tiny_moonshine.hpp makes them. `table`: a name for the weights of tokens that makes texts of several; `scale`: of these."""
    if name.endswith("embed_tokens.weight") or name == "proj_out.weight":
        return make.random_values(table + name, shape) * np.float32(scale)
    return make.random_values(name, shape)


def sound():
    return make.sound(2.5)


def result(table, scale, changes):
    config = transformers.MoonshineConfig(**{**COMMON, **changes})
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        transformers.MoonshineForConditionalGeneration(config).save_pretrained(folder)
        tensors = {key: random_values(key, value.shape, table, scale) for key, value in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        saved = json.loads((folder / "config.json").read_text())
        model = transformers.MoonshineForConditionalGeneration.from_pretrained(folder, attn_implementation="eager", dtype=torch.float64).eval()
    x = torch.tensor(sound()[None]).double()
    tokens = [START] + [(i * 29 + 7) % 256 for i in range(20)]
    with torch.no_grad():
        states = model.model.encoder(x).last_hidden_state[0].numpy()
        logits = model(x, decoder_input_ids=torch.tensor([tokens])).logits[0].numpy()
        text = model.generate(x, max_new_tokens=30, do_sample=False, num_beams=1)[0].tolist()
    margin = np.sort(model(x, decoder_input_ids=torch.tensor([text])).logits[0].detach().numpy())
    print(saved, len(states), text, (margin[:, -1] - margin[:, -2]).min())
    rows = [0, 7, len(tokens) - 1]
    return {"table": table, "scale": scale, "config": saved, "tensors": {key: list(value.shape) for key, value in sorted(tensors.items())}, "frames": len(states),
            "states": make.audio.elements(states, 200), "tokens": tokens, "rows": rows, "logits": [make.numbers(logits[row]) for row in rows], "text": text}


def main(check):
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    made = {"special": SPECIAL, **{name: result(*case) for name, case in CASES.items()}}
    return make.audio.keep(HERE / "moonshine.json", made, check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
