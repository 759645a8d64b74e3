#!/usr/bin/python3
"""A real Whisper (tiny.en) hears recorded speech, and two real voices: real_speech_test.py WEFT [DEVICE]. All come with script/setup --judges."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import wave

CACHE = pathlib.Path(os.environ.get("WEFT_CACHE") or pathlib.Path(__file__).parents[2] / ".cache")
MODEL, RECORDINGS = CACHE / "data" / "whisper-tiny-en", CACHE / "data" / "recordings"
# A speaker names places of loudspeakers. "Rear" and "we're" sound alike to a model of 39 million weights.
WANTED = {"Front_Center": "front center", "Front_Left": "front left", "Front_Right": "front right", "Rear_Center": "rear center",
          "Rear_Left": "rear left", "Side_Left": "side left", "Side_Right": "side right"}
# As espeak writes "The quick brown fox jumps over the lazy dog." in American English.
PHONEMES, SPOKEN = "ðə kwˈɪk bɹˈaʊn fˈɑːks dʒˈʌmps ˌoʊvɚ ðə lˈeɪzi dˈɑːɡ.", "the quick brown fox jumps over the lazy dog"


def words(text):
    return " ".join(re.findall(r"[a-z']+", text.lower()))


def transcribe(weft, device, path, *options):
    done = subprocess.run([weft, "transcribe", MODEL, path, "--format", "json", "--device", device, *options], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def joined(path, names, gap):
    """The recordings one after the other, with silence between; gives the second in which each begins."""
    begins, samples, rate = [], b"", 0
    for name in names:
        with wave.open(str(RECORDINGS / f"{name}.wav")) as file:
            rate = file.getframerate()
            begins.append(len(samples) / 2 / rate)
            samples += file.readframes(file.getnframes()) + bytes(2 * int(gap * rate))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples)
    return begins


def main(weft, device="cpu"):
    for name, wanted in WANTED.items():
        heard = transcribe(weft, device, RECORDINGS / f"{name}.wav")
        assert words(heard["text"]) == wanted, (name, heard["text"])
        assert 0 <= heard["segments"][0]["begin"] < heard["segments"][-1]["end"] < heard["seconds"] + 1, heard
    # Longer than a window: every phrase is heard once, in its order, near its time.
    names = list(WANTED)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "long.wav"
        begins = joined(path, names * 2, 1.5)
        heard = transcribe(weft, device, path)
        # Words are heard before the next phrase begins. (The last one of a phrase may be late by the pause, as with openai-whisper.) With
        # beams, too, and where only speech is heard.
        spoken, alone = ([(w["begin"], w["end"], words(w["text"])) for s in transcribe(weft, device, path, *options)["segments"] for w in s["words"]]
                         for options in (["--words"], ["--words", "--beam-size", "3", "--detector", CACHE / "data" / "silero" / "silero_vad.onnx"]))
    timed, heard_alone = (sum(any(begin - 0.3 <= a <= b <= begin + 2.8 and text == WANTED[name].split()[1] for a, b, text in found)
                              for begin, name in zip(begins, names * 2)) for found in (spoken, alone))
    assert heard["seconds"] > 35, heard["seconds"]
    found = [(s["begin"], s["end"], words(s["text"])) for s in heard["segments"]]
    near = 0
    for begin, name in zip(begins, names * 2):
        near += any(a - 2.5 <= begin + 0.7 <= b + 2.5 and WANTED[name].split()[1] in text for a, b, text in found)
    assert near >= 12, (near, found)
    assert timed >= 12, (timed, spoken)
    assert heard_alone >= 12, (heard_alone, alone)
    # What Weft says, Weft hears.
    for voice in ([CACHE / "data" / "piper" / "en_US-joe-medium.onnx"], [CACHE / "data" / "kokoro" / "kokoro-v1.0.int8.onnx", "--speaker", "jf_alpha"]):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "said.wav"
            subprocess.run([weft, "speak", *voice, PHONEMES, "--phonemes", "--out", path, "--device", device], check=True)
            heard = transcribe(weft, device, path)
        assert words(heard["text"]) == SPOKEN, (voice, heard["text"])
        assert 1.5 < heard["seconds"] < 5, heard["seconds"]
    print(f"{len(WANTED)} recordings, {near} of {len(begins)} phrases of a long sound at their times, {timed} words at theirs, {heard_alone} with beams and a detector, and a sentence that Weft said itself in two voices")


if __name__ == "__main__":
    main(*sys.argv[1:])
