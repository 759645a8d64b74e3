"""What the transformers library makes of a tiny random Whisper: make.py [--check] writes whisper.json for whisper_test.cpp.

Features, encoder states, teacher-forced logits, greedy texts and segments of a sound. The library computes in f64. Weights follow from
the names of tensors, as in test/llm/transformers/make.py. Made with transformers 4.46.3, torch 1.13 and NumPy 1.24.
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
TEXT, LANGUAGES = 256, ["en", "de", "fr"]
SPECIAL = ["<|endoftext|>", "<|startoftranscript|>"] + [f"<|{code}|>" for code in LANGUAGES] + [
    "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>", "<|nospeech|>", "<|notimestamps|>"]
ID = {name: TEXT + i for i, name in enumerate(SPECIAL)}
POSITIONS = 50
CONFIG = dict(vocab_size=TEXT + len(SPECIAL) + POSITIONS + 1, d_model=32, num_mel_bins=16, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4,
              decoder_attention_heads=2, encoder_ffn_dim=48, decoder_ffn_dim=64, max_source_positions=POSITIONS, max_target_positions=40,
              bos_token_id=ID["<|endoftext|>"], eos_token_id=ID["<|endoftext|>"], pad_token_id=ID["<|endoftext|>"],
              decoder_start_token_id=ID["<|startoftranscript|>"], suppress_tokens=None, begin_suppress_tokens=None)
GENERATION = dict(is_multilingual=True, lang_to_id={f"<|{code}|>": ID[f"<|{code}|>"] for code in LANGUAGES},
                  task_to_id={"transcribe": ID["<|transcribe|>"], "translate": ID["<|translate|>"]},
                  no_timestamps_token_id=ID["<|notimestamps|>"], prev_sot_token_id=ID["<|startofprev|>"], max_initial_timestamp_index=20,
                  suppress_tokens=[1, 5, 200, ID["<|startofprev|>"], ID["<|startoflm|>"], ID["<|nospeech|>"], ID["<|translate|>"], ID["<|transcribe|>"],
                                   ID["<|startoftranscript|>"]],
                  begin_suppress_tokens=[32, ID["<|endoftext|>"]], max_length=40, decoder_start_token_id=ID["<|startoftranscript|>"],
                  bos_token_id=ID["<|endoftext|>"], eos_token_id=ID["<|endoftext|>"], pad_token_id=ID["<|endoftext|>"])


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


llm = module("llm_make", HERE.parent / "llm" / "transformers" / "make.py")
audio = module("audio_make", HERE.parent / "audio" / "make.py")


def random_values(name, shape):
    """As whisper_test.cpp makes them."""
    stream = 0xCBF29CE484222325
    for byte in name.encode():
        stream = (stream ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    norm = len(shape) == 1 and name.endswith(".weight")
    scale, offset = (0.3, 1.0 if norm else 0.0) if len(shape) == 1 else (1.7 / np.sqrt(np.prod(shape[1:], dtype=np.float64)), 0.0)
    if name.endswith("decoder.embed_positions.weight"):
        scale = 1.5  # so that greedy texts do not repeat one token
    units = (llm.philox(stream, int(np.prod(shape))) >> np.uint64(8)).astype(np.float64) * 2.0**-24
    return (offset + scale * (2.0 * units - 1)).astype(np.float32).reshape(shape)


def sound(seconds):
    """Three chirps, the middle one softer."""
    whole = np.concatenate([audio.chirp(), 0.1 * audio.chirp(), audio.chirp()[::-1]]).astype(np.float32)
    return whole[: int(seconds * 16000)]


def numbers(array, digits=6):
    return [float(f"{x:.{digits}f}") for x in np.asarray(array, np.float64).reshape(-1)]


def result():
    config = transformers.WhisperConfig(**CONFIG)
    model = transformers.WhisperForConditionalGeneration(config)
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        model.save_pretrained(folder, safe_serialization=True)
        tensors = load_file(folder / "model.safetensors")
        tensors = {key: random_values(key, value.shape) for key, value in tensors.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
        saved = json.loads((folder / "config.json").read_text())
        model = transformers.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").double().eval()
    model.generation_config = transformers.GenerationConfig(**GENERATION)
    extractor = transformers.WhisperFeatureExtractor(feature_size=CONFIG["num_mel_bins"], chunk_length=1)
    prompt = [ID["<|startoftranscript|>"], ID["<|de|>"], ID["<|transcribe|>"]]
    tokens = prompt + [ID["<|notimestamps|>"]] + [(i * 29 + 7) % TEXT for i in range(20)]
    with torch.no_grad():
        # Shorter than a window: behind a sound that fills it, the library mirrors the last samples, and Weft has silence.
        x = sound(0.98)
        features = extractor(x, sampling_rate=16000, return_tensors="np").input_features
        inputs = torch.tensor(features).double()
        states = model.model.encoder(inputs).last_hidden_state[0].numpy()
        logits = model(inputs, decoder_input_ids=torch.tensor([tokens])).logits[0].numpy()
        first = model(inputs, decoder_input_ids=torch.tensor([prompt[:1]])).logits[0, -1]
        languages = torch.softmax(first[[ID[f"<|{c}|>"] for c in LANGUAGES]], -1).numpy()
        texts = {}
        for timestamps in (False, True):
            for task in ("transcribe", "translate"):
                made = model.generate(inputs, language="de", task=task, return_timestamps=timestamps, max_new_tokens=16, num_beams=1, do_sample=False)[0].tolist()
                texts[f"{task}{'-times' if timestamps else ''}"] = made
        # A window after the other; the library needs sounds longer than a window for this.
        segments = []
        for seconds in (1.7, 2.9):
            long = extractor(sound(seconds), sampling_rate=16000, return_tensors="pt", truncation=False, padding="longest", return_attention_mask=True)
            made = model.generate(long.input_features.double(), attention_mask=long.attention_mask, language="de", task="transcribe", return_timestamps=True,
                                  return_segments=True, condition_on_prev_tokens=False, max_new_tokens=16, num_beams=1, do_sample=False)
            segments.append({"seconds": seconds, "segments": [[round(float(s["start"]), 4), round(float(s["end"]), 4), s["tokens"].tolist()] for s in made["segments"][0]]})
    rows = [3, 9, 17, len(tokens) - 1]
    return {"config": saved, "generation_config": GENERATION, "special": SPECIAL, "features": audio.elements(features[0], 100),
            "states": audio.elements(states, 200), "tokens": tokens, "rows": rows, "languages": dict(zip(LANGUAGES, numbers(languages))),
            "texts": texts, "windows": segments, "tensors": {key: list(value.shape) for key, value in sorted(tensors.items())},
            "logits": [numbers(logits[row]) for row in rows]}


def main(check):
    transformers.utils.logging.set_verbosity_error()
    torch.set_num_threads(1)
    made = result()
    print({key: value for key, value in made.items() if key in ("texts", "windows", "languages")})
    return audio.keep(HERE / "whisper.json", made, check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
