"""Spans of speech that Silero's library finds in probabilities: make_detector.py [--check] writes detector.json for detector_test.cpp.

Made with silero-vad 6.2.3 and NumPy 1.24.
"""
import importlib.util
import pathlib
import sys

import numpy as np
from silero_vad import utils_vad

HERE = pathlib.Path(__file__).parent
spec = importlib.util.spec_from_file_location("audio_make", HERE.parent / "audio" / "make.py")
audio = importlib.util.module_from_spec(spec)
spec.loader.exec_module(audio)
OPTIONS = ({}, {"threshold": 0.3}, {"min_speech_duration_ms": 0, "min_silence_duration_ms": 0}, {"min_silence_duration_ms": 500, "speech_pad_ms": 200},
           {"speech_pad_ms": 0, "threshold": 0.9})


def probabilities(seed, count):
    """Speech and silence in turn, with noise."""
    draw = np.random.default_rng(seed)
    level = np.repeat(draw.uniform(0, 1, count // 5 + 1) > 0.5, 5)[:count] * 0.7 + 0.15
    return (np.clip(level + 0.25 * draw.standard_normal(count), 0, 1) * 1024).round() / 1024  # f32 holds these exactly


def main(check):
    cases = []
    for seed, count, samples in ((1, 60, 60 * 512), (2, 60, 59 * 512 + 100), (3, 200, 200 * 512), (4, 1, 300)):
        p = probabilities(seed, count)
        for options in OPTIONS:
            spans = utils_vad.get_speech_timestamps_from_probs(p.tolist(), audio_length_samples=samples, **options)
            cases.append({"probabilities": p.tolist(), "samples": samples, **options, "spans": [[s["start"], s["end"]] for s in spans]})
    print([len(case["spans"]) for case in cases])
    return audio.keep(HERE / "detector.json", {"cases": cases}, check)


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
