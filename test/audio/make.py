"""What the transformers library makes of a signal: make.py [--check] writes features.json, which features_test.cpp compares with.

Mel filters and Whisper's log-mel spectrogram, some elements of each. Made with transformers 4.46.3, torch 1.13 and NumPy 1.24.
"""
import json
import math
import pathlib
import sys

import numpy as np
import torch
from transformers import WhisperFeatureExtractor
from transformers.audio_utils import mel_filter_bank

RATE, FRAMES = 16000, 16000


def chirp():
    """As signals.hpp makes it."""
    state, x = 1, np.zeros(FRAMES, np.float32)
    for t in range(FRAMES):
        state = (1664525 * state + 1013904223) & 0xFFFFFFFF
        s = t / RATE
        x[t] = 0.5 * math.sin(2 * math.pi * (200 * s + 900 * s * s)) + 0.01 * ((state >> 8) / (1 << 23) - 1)
    return x


def elements(matrix, count):
    """Elements that a stride which shares no factor with the columns visits: [row, column, value]."""
    flat = np.asarray(matrix, np.float64).reshape(-1)
    places = [(i * 7919) % flat.size for i in range(count)]
    return [[p // matrix.shape[1], p % matrix.shape[1], float(f"{flat[p]:.9g}")] for p in places]


def filters(mels, size, low, high, rate, scale, norm):
    bank = mel_filter_bank(size // 2 + 1, mels, low, high, rate, norm="slaney" if norm else None, mel_scale=scale).T
    busy = np.argwhere(bank > 0)[:: max(1, np.count_nonzero(bank) // 40)]
    return {"mels": mels, "size": size, "low": low, "high": high, "rate": rate, "scale": scale, "normalized": norm,
            "nonzero": int(np.count_nonzero(bank > 1e-12)), "sum": float(bank.sum()),
            "elements": [[int(m), int(k), float(f"{bank[m, k]:.9g}")] for m, k in busy]}


def keep(path, result, check):
    """Writes what was made, a line a member; or compares it with the file. Returns the exit code."""
    text = "{\n" + ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in result.items()) + "\n}\n"
    if check:
        print("the same" if path.read_text() == text else "DIFFERS")
        return path.read_text() != text
    path.write_text(text)
    return 0


def main(check):
    x = chirp()
    result = {"frames": FRAMES, "filters": [filters(80, 400, 0, 8000, 16000, "slaney", True), filters(128, 400, 0, 8000, 16000, "slaney", True),
                                            filters(40, 512, 60, 7600, 22050, "htk", False), filters(26, 1024, 0, 12000, 24000, "htk", True)]}
    for mels in (80, 128):
        features = WhisperFeatureExtractor(feature_size=mels)
        whole = features(x, sampling_rate=RATE, padding="longest", return_tensors="np").input_features[0]
        assert whole.shape == (mels, FRAMES // 160), whole.shape
        result[f"log_mel_{mels}"] = elements(whole, 200)
    spectrum = torch.stft(torch.tensor(x).double(), 256, 100, 200, torch.hamming_window(200, dtype=torch.float64), return_complex=True).T
    result["stft_real"], result["stft_imaginary"] = elements(spectrum.real, 60), elements(spectrum.imag, 60)
    return keep(pathlib.Path(__file__).parent / "features.json", result, check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
