"""What the transformers library makes of tiny random recognisers by CTC: make_ctc.py [--check] writes ctc.json for ctc_test.cpp.

Logits, texts and times of words of a sound. The library computes in f64. Weights follow from the names of tensors. Made with
transformers 4.46.3, torch 1.13 and NumPy 1.24.
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
from transformers.models.hubert import modeling_hubert
from transformers.models.wav2vec2 import modeling_wav2vec2

HERE = pathlib.Path(__file__).parent
PIECES = ["<pad>", "<s>", "</s>", "<unk>", "|", "E", "T", "A", "É", "'"]
COMMON = dict(vocab_size=len(PIECES), hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=40, conv_kernel=[10, 8, 8], conv_stride=[5, 8, 8],
              conv_dim=[12, 16, 20], num_feat_extract_layers=3, num_conv_pos_embeddings=6, num_conv_pos_embedding_groups=4, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CASES = {
    "wav2vec2 base": ("105.", transformers.Wav2Vec2Config, transformers.Wav2Vec2ForCTC, {}, {}),
    "wav2vec2 large": ("232.", transformers.Wav2Vec2Config, transformers.Wav2Vec2ForCTC,
                       dict(feat_extract_norm="layer", conv_bias=True, do_stable_layer_norm=True, num_conv_pos_embeddings=5, layer_norm_eps=1e-3), {"do_lower_case": True}),
    "hubert base": ("335.", transformers.HubertConfig, transformers.HubertForCTC, dict(feat_proj_layer_norm=False, hidden_act="relu"), {}),
    "hubert large": ("517.", transformers.HubertConfig, transformers.HubertForCTC, dict(feat_extract_norm="layer", conv_bias=True, do_stable_layer_norm=True), {"word_delimiter_token": "'"}),
}

spec = importlib.util.spec_from_file_location("whisper_make", HERE / "make.py")
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)


def random_values(name, shape, head):
    """As tiny_ctc.hpp makes them. `head`: a name for the weights of the head that makes texts of many tokens."""
    return make.random_values(head + name, shape) * np.float32(4) if name == "lm_head.weight" else make.random_values(name, shape)


def sound():
    """Chirps, one of them softer."""
    return np.concatenate([make.sound(3), make.sound(3)[::-1]])


def result(head, kind, model_class, changes, tokenizer_options):
    config = kind(**{**COMMON, **changes})
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model_class(config).save_pretrained(folder, safe_serialization=True)
        tensors = {key: random_values(key, value.shape, head) for key, value in load_file(folder / "model.safetensors").items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        saved = json.loads((folder / "config.json").read_text())
        model = model_class.from_pretrained(folder, attn_implementation="eager").double().eval()
        (folder / "vocab.json").write_text(json.dumps({piece: i for i, piece in enumerate(PIECES)}))
        tokenizer = transformers.Wav2Vec2CTCTokenizer(folder / "vocab.json", **tokenizer_options)
    x = transformers.Wav2Vec2FeatureExtractor(do_normalize=True)(sound(), sampling_rate=16000, return_tensors="np").input_values
    with torch.no_grad():
        logits = model(torch.tensor(x).double()).logits[0].numpy()
    decoded = tokenizer.decode(logits.argmax(-1), output_word_offsets=True, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    hop = int(np.prod(COMMON["conv_stride"]))
    small = tokenizer_options.get("do_lower_case", False)  # the library writes the text so, and not its words
    words = [[w["word"].lower() if small else w["word"], round(w["start_offset"] * hop / 16000, 4), round(w["end_offset"] * hop / 16000, 4)] for w in decoded.word_offsets]
    print(decoded.text[:100], len(words), sorted(set(logits.argmax(-1).tolist())), (np.sort(logits)[:, -1] - np.sort(logits)[:, -2]).min())
    return {"head": head, "config": saved, "tokenizer": tokenizer_options, "tensors": {key: list(value.shape) for key, value in sorted(tensors.items())}, "frames": len(logits),
            "logits": make.audio.elements(logits, 200), "text": " ".join(decoded.text.split()), "words": words}


def main(check):
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    # Debian's torch 1.13 cannot import what this asks about.
    for module in (modeling_hubert, modeling_wav2vec2):
        module.is_fsdp_managed_module = lambda _: False
    made = {"pieces": PIECES, **{name: result(*case) for name, case in CASES.items()}}
    return make.audio.keep(HERE / "ctc.json", made, check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
