#!/usr/bin/python3
"""weft transcribe, speak, and a chat by voice: transcribe_test.py WEFT [unittest arguments]. What they print and write, and what they refuse."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import wave

import tiny_model
import tiny_speech

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
OK, USAGE, FILE, INTERRUPTED = 0, 2, 3, 130
# Every window has a text, however improbable: the model says noise.
NOISE = ["--temperatures", "0", "--device", "cpu"]


class Folder(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="weft-transcribe-"))
        cls.model = tiny_speech.put_whisper(cls.folder / "tiny")
        cls.sound = tiny_speech.put_sound(cls.folder / "a.wav", 2.3, 22050)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder, ignore_errors=True)

    def weft(self, *arguments, code=OK):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("WEFT_")}
        done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=120, env=environment, cwd=self.folder)
        self.assertEqual(done.returncode, code, done.stderr[:2000])
        return done.stdout if code == OK else done.stderr


class Transcribe(Folder):
    def test_formats_tell_the_same(self):
        whole = json.loads(self.weft("transcribe", "tiny", "a.wav", "--format", "json", "--language", "german", *NOISE))
        self.assertEqual((whole["language"], whole["language_probability"]), ("de", 1))
        self.assertAlmostEqual(whole["seconds"], 2.3, 3)
        segments = whole["segments"]
        self.assertGreater(len(segments), 1)
        for a, b in zip(segments, segments[1:]):
            self.assertLess(a["begin"], a["end"])
            self.assertLessEqual(a["end"], b["begin"])
        plain = self.weft("transcribe", "tiny", "a.wav", "--language", "de", "--timestamps", *NOISE).splitlines()
        times = [re.match(r"\[(\d\d):(\d\d\.\d\d) - (\d\d):(\d\d\.\d\d)\] ", line) for line in plain]
        self.assertEqual([round(s["begin"], 2) for s in segments], [float(t[2]) for t in times if t])
        srt = self.weft("transcribe", "tiny", "a.wav", "--language", "de", "--format", "srt", *NOISE)
        self.assertEqual(srt.count(" --> "), len(segments))
        self.assertTrue(srt.startswith("1\n00:00:0"))
        self.assertTrue(self.weft("transcribe", "tiny", "a.wav", "--format", "vtt", *NOISE).startswith("WEBVTT\n\n00:00:0"))

    def test_words_have_times(self):
        options = ["transcribe", "tiny", "a.wav", "--language", "de", "--words", *NOISE]
        plain = json.loads(self.weft("transcribe", "tiny", "a.wav", "--format", "json", "--language", "de", *NOISE))
        whole = json.loads(self.weft(*options, "--format", "json"))
        self.assertEqual(whole["text"], plain["text"])
        self.assertEqual([s["words"] for s in plain["segments"]], [[] for _ in plain["segments"]])
        words = [word for s in whole["segments"] for word in s["words"]]
        self.assertGreater(len(words), 1)
        for word in words:
            self.assertLessEqual(word["begin"], word["end"])
        cues = len(words)
        self.assertEqual(self.weft(*options, "--format", "srt").count(" --> "), cues)
        self.assertEqual(self.weft(*options, "--format", "vtt", "--word-cues").count(" --> "), cues)
        self.assertEqual(self.weft(*options, "--format", "vtt").count(" --> "), sum(bool(s["words"]) for s in whole["segments"]))
        lines = self.weft(*options)
        self.assertEqual(len(re.findall(r"^\[\d\d:\d\d\.\d\d - \d\d:\d\d\.\d\d\] ", lines, re.M)), len(words))

    def test_beams_and_draws(self):
        options = ["transcribe", "tiny", "a.wav", "--language", "de", "--format", "json", "--max-tokens", "12", "--no-timestamps", "--device", "cpu"]
        mean = lambda *more: json.loads(self.weft(*options, *more))["segments"][0]["mean_log_probability"]  # noqa: E731
        self.assertGreaterEqual(mean("--temperatures", "0", "--beam-size", "5"), mean("--temperatures", "0"))
        self.assertGreater(mean("--temperatures", "1", "--best-of", "8"), mean("--temperatures", "1"))
        mean("--temperatures", "0", "--beam-size", "2", "--patience", "2", "--length-penalty", "0.5")
        self.assertIn("65 beams; give 1 to 64", self.weft(*options, "--beam-size", "65", code=USAGE))
        self.assertIn("length penalty of 2", self.weft(*options, "--length-penalty", "2", code=USAGE))

    def test_a_recogniser_by_ctc(self):
        tiny_speech.put_ctc(self.folder / "letters")
        whole = json.loads(self.weft("transcribe", "letters", "a.wav", "--format", "json", "--words", "--device", "cpu"))
        words = [word for s in whole["segments"] for word in s["words"]]
        self.assertGreater(len(words), 0)
        self.assertEqual("".join(word["text"] for word in words)[1:], whole["text"])
        self.assertEqual(len(self.weft("transcribe", "letters", "a.wav", "--words", "--device", "cpu").splitlines()), len(words))
        self.assertIn("does not translate", self.weft("transcribe", "letters", "a.wav", "--task", "translate", code=USAGE))
        self.assertIn("knows one language", self.weft("transcribe", "letters", "a.wav", "--detect", code=USAGE))
        self.assertIn("without beams", self.weft("transcribe", "letters", "a.wav", "--beam-size", "3", code=USAGE))

    def test_only_what_a_detector_finds_is_heard(self):
        tiny_speech.put_detector(self.folder / "ears.onnx")
        tiny_speech.put_detector(self.folder / "deaf.onnx", 0)
        tiny_speech.put_moonshine(self.folder / "heard")
        heard = lambda *more: self.weft("transcribe", "heard", "a.wav", "--format", "json", "--max-tokens", "9", *NOISE, *more)  # noqa: E731
        self.assertEqual(json.loads(heard("--detector", "deaf.onnx"))["segments"], [])
        self.assertAlmostEqual(json.loads(heard("--detector", "ears.onnx"))["segments"][0]["end"], json.loads(heard())["segments"][0]["end"], 3)
        self.assertIn("none.onnx", self.weft("transcribe", "heard", "a.wav", "--detector", "none.onnx", code=FILE))

    def test_a_moonshine(self):
        tiny_speech.put_moonshine(self.folder / "moon")
        whole = json.loads(self.weft("transcribe", "moon", "a.wav", "--format", "json", "--max-tokens", "9", *NOISE))
        self.assertEqual([(s["begin"], round(s["end"], 3), len(s["tokens"])) for s in whole["segments"]], [(0, 2.3, 9)])
        self.assertEqual(self.weft("transcribe", "moon", "a.wav", "--max-tokens", "9", *NOISE).strip(), whole["text"].strip())
        self.assertIn("the model has 48 positions", self.weft("transcribe", "moon", "a.wav", "--max-tokens", "48", code=USAGE))
        self.assertIn("does not know the times of words", self.weft("transcribe", "moon", "a.wav", "--words", code=USAGE))

    def test_languages_are_detected(self):
        lines = self.weft("transcribe", "tiny", "a.wav", "--detect", *NOISE).splitlines()
        self.assertEqual({line.split()[0] for line in lines} - {"en", "de", "fr"}, set())
        self.assertAlmostEqual(sum(float(line.split()[2]) for line in lines), 1, 1)
        found = json.loads(self.weft("transcribe", "tiny", "a.wav", "--format", "json", *NOISE))
        self.assertEqual(found["language"], lines[0].split()[0])

    def test_refuses(self):
        self.assertIn('does not know the language "xx"', self.weft("transcribe", "tiny", "a.wav", "--language", "xx", *NOISE, code=USAGE))
        self.weft("transcribe", "tiny", "a.wav", "--format", "mp3", code=USAGE)
        self.weft("transcribe", "tiny", "a.wav", "--temperatures", "-1", code=USAGE)
        (self.folder / "bad.wav").write_bytes(self.sound.read_bytes()[:1000])
        self.assertIn("bad.wav: 202", self.weft("transcribe", "tiny", "bad.wav", code=FILE))
        self.assertIn("is not a WAV, FLAC, Ogg or MP3 file", self.weft("transcribe", "tiny", "tiny/config.json", code=FILE))
        self.weft("transcribe", "tiny", "none.wav", code=FILE)
        self.weft("transcribe", "none", "a.wav", code=FILE)

    def test_ctrl_c_ends_it(self):
        long = tiny_speech.put_sound(self.folder / "long.wav", 200, 8000)
        process = subprocess.Popen([WEFT, "transcribe", self.model, long, *NOISE], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED)


class Speak(Folder):

    def frames(self, *arguments):
        self.weft("speak", "voice", *arguments, "--out", "out.wav", "--device", "cpu")
        with wave.open(str(self.folder / "out.wav")) as file:
            self.assertEqual((file.getnchannels(), file.getframerate(), file.getsampwidth()), (1, 8000, 2))
            return file.readframes(file.getnframes())

    def setUp(self):
        if not (self.folder / "voice").exists():
            tiny_speech.put_voice(self.folder / "voice")

    def test_says_texts(self):
        words = self.frames("hello there")
        self.assertEqual(words, self.frames("hello there"))
        self.assertNotEqual(words, self.frames("hello there", "--seed", "1"))
        self.assertLess(len(self.frames("hello there", "--rate", "3")), len(words))
        (self.folder / "text.txt").write_text("Hello there. Hello again!\n")
        self.assertGreater(len(self.frames("--file", "text.txt")), len(words) + 2 * 2000)
        # What is said can be heard.
        self.weft("transcribe", "tiny", "out.wav", *NOISE)

    def test_refuses(self):
        self.assertIn("knows no character", self.weft("speak", "voice", "123", "--out", "b.wav", code=USAGE))
        self.assertFalse((self.folder / "b.wav").exists())
        self.assertIn("speaker 1; the model has 1", self.weft("speak", "voice", "a", "--out", "b.wav", "--speaker", "1", code=USAGE))
        self.weft("speak", "voice", "a", code=USAGE)
        self.weft("speak", "voice", "--out", "b.wav", code=USAGE)
        self.weft("speak", "voice", "a", "--rate", "99", "--out", "b.wav", code=USAGE)
        self.assertIn('"whisper"; voices are', self.weft("speak", "tiny", "a", "--out", "b.wav", code=FILE))
        self.assertIn('"vits"; speech models are', self.weft("transcribe", "voice", "a.wav", code=FILE))


class VoiceChat(Folder):
    def test_hears_and_says(self):
        tiny_model.put_byte_model(self.folder / "mouth")
        tiny_speech.put_voice(self.folder / "throat")
        options = ["chat", "mouth", "--device", "cpu", "--max-tokens", "60", "--temperature", "1", "--seed", "5"]
        voice = ["--listen", "a.wav", "--transcriber", "tiny", "--language", "de"]
        said = self.weft(*options, *voice, "--say", "said.wav", "--voice", "throat")
        self.assertTrue(said.strip())
        with wave.open(str(self.folder / "said.wav")) as file:
            self.assertGreater(file.getnframes(), 100)
        # The same as asking what was heard.
        heard = json.loads(self.weft("transcribe", "tiny", "a.wav", "--language", "de", "--format", "json", "--device", "cpu"))["text"]
        self.assertEqual(said, self.weft(*options, heard))
        for wrong in (["--listen", "a.wav"], ["hi", "--say", "b.wav"], ["hi", "--voice", "throat"], ["--say", "b.wav", "--voice", "throat"], ["hi", "--language", "de"]):
            self.weft(*options, *wrong, code=USAGE)
        self.assertFalse((self.folder / "b.wav").exists())


if __name__ == "__main__":
    unittest.main()
