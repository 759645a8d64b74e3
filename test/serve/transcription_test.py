#!/usr/bin/python3
"""weft serve with a speech model: transcription_test.py WEFT [unittest arguments]. Forms as they may come, and answers."""
import http.client
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "cli"))
import tiny_model  # noqa: E402
from command_server import CommandServer, ask  # noqa: E402
import tiny_speech  # noqa: E402

WEFT = pathlib.Path(sys.argv.pop(1)).resolve()
BOUNDARY = "the-boundary"


def form(parts, boundary=BOUNDARY):
    """(name, content) or (name, content, file name)."""
    body = b""
    for name, content, *file in parts:
        content = content if isinstance(content, bytes) else content.encode()
        disposition = f'form-data; name="{name}"' + (f'; filename="{file[0]}"\r\nContent-Type: audio/wav' if file else "")
        body += f"--{boundary}\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + content + b"\r\n"
    return body + f"--{boundary}--\r\n".encode()


class Server(CommandServer):
    def __init__(self, folder, *options):
        super().__init__([WEFT, "serve", *options, "--port", "0", "--device", "cpu", "--quiet"], folder / "log",
                         r"serving (.*) on http://127\.0\.0\.1:(\d+)/v1", cwd=folder)
        self.names, self.port = self.found[1], int(self.found[2])

    def ask(self, method, path, body=None, type=f"multipart/form-data; boundary={BOUNDARY}"):
        status, _, answer = ask(self.port, method, path, body, headers={"Content-Type": type} if body is not None else {})
        return status, answer

    def stop(self):
        return super().stop()[0]


class Transcriptions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.holder = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.holder.name)
        tiny_speech.put_whisper(cls.folder / "ears")
        cls.wav = tiny_speech.put_sound(cls.folder / "a.wav", 2.3, 22050).read_bytes()
        cls.server = Server(cls.folder, "ears")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0
        cls.holder.cleanup()

    def transcribe(self, *parts, path="/v1/audio/transcriptions", **options):
        return self.server.ask("POST", path, form([("file", self.wav, "a.wav"), ("temperature", "0.5"), *parts]), **options)

    def test_formats(self):
        status, answer = self.transcribe(("model", "ears"), ("language", "de"), ("response_format", "verbose_json"))
        self.assertEqual(status, 200, answer)
        self.assertEqual((answer["language"], answer["task"], round(answer["duration"], 3)), ("german", "transcribe", 2.3))
        self.assertGreater(len(answer["segments"]), 1)
        self.assertEqual([s["id"] for s in answer["segments"]], list(range(len(answer["segments"]))))
        status, plain = self.transcribe(("language", "de"))
        self.assertEqual((plain["text"], plain["usage"]), (answer["text"], {"type": "duration", "seconds": 3}))
        self.assertEqual(self.transcribe(("language", "de"), ("response_format", "text"))[1], answer["text"] + "\n")
        self.assertIn(" --> ", self.transcribe(("response_format", "srt"))[1])
        self.assertTrue(self.transcribe(("response_format", "vtt"))[1].startswith("WEBVTT"))
        status, answer = self.transcribe(("response_format", "verbose_json"), path="/v1/audio/translations")
        self.assertEqual((status, answer["task"]), (200, "translate"))

    def test_times_of_words(self):
        asked = [("language", "de"), ("response_format", "verbose_json")]
        word, segment = ("timestamp_granularities[]", "word"), ("timestamp_granularities[]", "segment")
        plain = self.transcribe(*asked)[1]
        self.assertNotIn("words", plain)
        only = self.transcribe(*asked, word)[1]
        self.assertNotIn("segments", only)
        self.assertEqual(only["text"], plain["text"])
        self.assertGreater(len(only["words"]), 1)
        for a in only["words"]:
            self.assertEqual(set(a), {"word", "start", "end"})
            self.assertLessEqual(a["start"], a["end"])
        both = self.transcribe(*asked, word, segment)[1]
        self.assertEqual((both["words"], len(both["segments"])), (only["words"], len(plain["segments"])))
        self.assertEqual(self.transcribe(("language", "de"), ("response_format", "srt"), word)[1].count(" --> "), len(only["words"]))
        self.assertEqual(self.transcribe(("language", "de"), word)[1]["text"], plain["text"])

    def test_streams(self):
        status, text = self.transcribe(("language", "de"), ("stream", "true"))
        self.assertEqual(status, 200)
        events = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
        self.assertEqual(events[-1], "[DONE]")
        events = [json.loads(event) for event in events[:-1]]
        self.assertEqual({event["type"] for event in events[:-1]}, {"transcript.text.delta"})
        self.assertEqual(events[-1]["type"], "transcript.text.done")

    def test_what_is_refused(self):
        for parts, field in (([("response_format", "mp3")], "response_format"), ([("temperature", "hot")], "temperature"), ([("language", "klingon")], "language"),
                             ([("timestamp_granularities[]", "letter")], "timestamp_granularities[]")):
            status, answer = self.transcribe(*parts)
            self.assertEqual((status, answer["error"]["param"]), (400, field), answer)
        self.assertEqual(self.transcribe(("model", "other"))[0], 404)
        post = lambda body, **options: self.server.ask("POST", "/v1/audio/transcriptions", body, **options)  # noqa: E731
        self.assertEqual(post(form([("model", "ears")]))[1]["error"]["param"], "file")
        slow = bytearray(self.wav)
        slow[24:28] = struct.pack("<I", 1)  # one frame a second
        self.assertIn("at most 7200", post(form([("file", bytes(slow), "s.wav")]))[1]["error"]["message"])
        status, answer = post(form([("file", b"RIFF", "b.wav")]))
        self.assertEqual((status, answer["error"]["param"]), (400, "file"))
        self.assertEqual(post(b"{}", type="application/json")[0], 415)
        for body in (b"", b"--", b"--the-boundary", b"--the-boundary\r\n", b"--the-boundary\r\nContent-Disposition: form-data\r\n\r\nx\r\n--the-boundary--",
                     b"--the-boundary\r\nnonsense\r\n\r\nx\r\n--the-boundary--", form([("file", self.wav, "a.wav")])[:-20], form([("a", "b")] * 300)):
            self.assertEqual(post(body)[0], 400, body[:60])
        self.assertEqual(post(form([("a", "b")]), type="multipart/form-data")[0], 400)
        self.assertEqual(self.server.ask("GET", "/v1/audio/transcriptions")[0], 405)
        status, answer = self.server.ask("POST", "/v1/chat/completions", b"{}", type="application/json")
        self.assertEqual((status, answer["error"]["message"]), (404, "this server has no language model"))
        self.assertEqual([m["id"] for m in self.server.ask("GET", "/v1/models")[1]["data"]], ["ears"])

    def test_requests_take_turns_and_can_leave(self):
        long = tiny_speech.put_sound(self.folder / "long.wav", 100, 8000).read_bytes()
        leaver = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        leaver.request("POST", "/v1/audio/transcriptions", form([("file", long, "l.wav")]), {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"})
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(self.transcribe(("language", "de"))[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.3)
        leaver.close()
        for thread in threads:
            thread.join(60)
        self.assertEqual(answers, [200] * 3)

    def test_a_recogniser_by_ctc(self):
        tiny_speech.put_ctc(self.folder / "letters")
        server = Server(self.folder, "letters")
        try:
            ask = lambda path, *parts: server.ask("POST", path, form([("file", self.wav, "a.wav"), *parts]))  # noqa: E731
            status, answer = ask("/v1/audio/transcriptions", ("response_format", "verbose_json"), ("timestamp_granularities[]", "word"), ("language", "en"))
            self.assertEqual((status, answer["language"]), (200, "english"), answer)
            self.assertEqual(" ".join(word["word"] for word in answer["words"]), answer["text"])
            status, answer = ask("/v1/audio/translations")
            self.assertEqual((status, answer["error"]["param"]), (400, "language"), answer)
            status, answer = ask("/v1/audio/transcriptions", ("prompt", "Weft"))
            self.assertEqual(status, 400, answer)
        finally:
            self.assertEqual(server.stop(), 0)

    def test_a_moonshine_hears_what_a_detector_finds(self):
        tiny_speech.put_moonshine(self.folder / "moon")
        tiny_speech.put_detector(self.folder / "ears.onnx")
        quiet = tiny_speech.put_sound(self.folder / "quiet.wav", 2, 16000, loudness=0.01).read_bytes()
        texts = {}
        for options in (["moon"], ["moon", "--detector", "ears.onnx"]):
            server = Server(self.folder, *options)
            try:
                for sound in (quiet, self.wav):
                    status, answer = server.ask("POST", "/v1/audio/transcriptions", form([("file", sound, "a.wav"), ("response_format", "verbose_json"), ("temperature", "0.5")]))
                    self.assertEqual(status, 200, answer)
                    texts[len(options), sound == quiet] = len(answer["segments"])
                status, answer = server.ask("POST", "/v1/audio/transcriptions", form([("file", self.wav, "a.wav"), ("response_format", "srt"), ("timestamp_granularities[]", "word")]))
                self.assertEqual(status, 400, answer)
                self.assertIn("does not know the times of words", answer["error"]["message"])
            finally:
                self.assertEqual(server.stop(), 0)
        self.assertEqual(texts, {(1, True): 1, (1, False): 1, (3, True): 0, (3, False): 1})
        tiny_speech.put_voice(self.folder / "mouth only")
        refused = subprocess.run([WEFT, "serve", "mouth only", "--detector", "ears.onnx", "--port", "0"], cwd=self.folder, capture_output=True, text=True, timeout=60)
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("--detector finds the speech for a speech model", refused.stderr)

    def test_a_voice_speaks(self):
        tiny_speech.put_voice(self.folder / "throat", "speakers-predicted")
        server = Server(self.folder, "throat")
        say = lambda body: server.ask("POST", "/v1/audio/speech", json.dumps(body).encode(), type="application/json")  # noqa: E731
        try:
            status, sound = say({"input": "hello there", "voice": "2", "response_format": "wav"})
            self.assertEqual((status, sound[:4], sound[8:12]), (200, "RIFF", "WAVE"))
            self.assertNotEqual(sound, say({"input": "hello there", "voice": "1", "response_format": "wav"})[1])
            self.assertGreater(len(sound), len(say({"input": "hello there", "voice": "2", "speed": 4})[1]))
            for body, field in (({}, "input"), ({"input": "a", "voice": "7"}, "voice"), ({"input": "a", "response_format": "mp3"}, "response_format"), ({"input": "a", "speed": 9}, "speed"),
                                ({"input": "a" * 70000}, "input"), ({"input": "a", "stream_format": "sse"}, "stream_format")):
                status, answer = say(body)
                self.assertEqual((status, answer["error"]["param"]), (400, field), answer)
            self.assertEqual(say({"input": "a", "model": "other"})[0], 404)
            self.assertIn("knows no character", say({"input": "123"})[1]["error"]["message"])
        finally:
            self.assertEqual(server.stop(), 0)

    def test_beside_a_language_model(self):
        tiny_model.put_byte_model(self.folder / "mouth")
        server = Server(self.folder, "mouth", "--transcriber", "ears")
        try:
            self.assertEqual(server.names, "mouth and ears")
            self.assertEqual([m["id"] for m in server.ask("GET", "/v1/models")[1]["data"]], ["mouth", "ears"])
            self.assertEqual(server.ask("GET", "/v1/models/ears")[1]["id"], "ears")
            self.assertEqual(server.ask("POST", "/v1/audio/transcriptions", form([("file", self.wav, "a.wav")]))[0], 200)
            body = json.dumps({"messages": [{"role": "user", "content": "hello"}], "max_tokens": 3}).encode()
            self.assertEqual(server.ask("POST", "/v1/chat/completions", body, type="application/json")[0], 200)
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
