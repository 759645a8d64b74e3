"""Vision and speech models, judged by what the transformers library makes of the same tiny models."""
import pathlib
import tempfile
import threading
import unittest

import numpy as np

import tiny_media
import weft
from weft import audio, llm, speech, vision


def images_of(case):
    return [np.frombuffer(bytes.fromhex(each["pixels"]), "u1").reshape(each["height"], each["width"], 3) for each in case["images"]]


class Folder(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = pathlib.Path(place.name)


class Vision(Folder):
    def test_embeddings_and_scores(self):
        case = tiny_media.put_vision_model("clip", self.folder / "clip")
        model = vision.load_encoder(self.folder / "clip")
        images, texts = model.embed_images(images_of(case)), model.embed_texts(case["texts"])
        np.testing.assert_allclose(images.numpy(), case["image_rows"], atol=5e-6)
        np.testing.assert_allclose(texts.numpy(), case["text_rows"], atol=5e-6)
        np.testing.assert_allclose(model.scores(images, texts).numpy(), case["scores"], rtol=1e-4, atol=1e-4)
        exact = np.exp(np.array(case["scores"]))
        np.testing.assert_allclose(model.probabilities(images, texts).numpy(), exact / exact.sum(1, keepdims=True), atol=1e-4)
        self.assertEqual(model.width, images.shape[1])
        longer = model.embed_texts(case["texts"], normalize=False)
        self.assertGreater(np.abs(np.linalg.norm(longer.numpy(), axis=1) - 1).max(), 0.01)
        with self.assertRaises(weft.UsageError):
            model.embed_images([])
        with self.assertRaises(weft.UsageError):
            model.embed_images([np.zeros((2, 2), "u1")])
        with self.assertRaises(weft.FileError):
            vision.load_classifier(self.folder / "clip")

    def test_classes(self):
        case = tiny_media.put_vision_model("vit", self.folder / "vit")
        model = vision.load_classifier(self.folder / "vit", device="cpu")
        logits = model.logits(images_of(case)).numpy()
        np.testing.assert_allclose(logits, case["logits"], rtol=1e-4, atol=1e-4)
        best = model.classify(images_of(case)[0], 2)
        shares = np.exp(case["logits"][0]) / np.exp(case["logits"][0]).sum()
        self.assertEqual([label.index for label in best], list(np.argsort(-shares)[:2]))
        self.assertAlmostEqual(best[0].probability, shares.max(), 4)

    def test_chats_see_images(self):
        case = tiny_media.put_vision_model("llava", self.folder / "llava")
        model = llm.load(self.folder / "llava", context=128, keep_packed=False)
        self.assertTrue(model.reads_images)
        chat = next(each for each in case["chats"] if each["name"] == "one")
        said = tiny_media.text_of(case, chat["greedy"])
        photo = images_of(case)[0]
        options = {"temperature": 0, "max_tokens": 12}
        self.assertEqual(model.describe_image(photo, "What is this?", **options).result().text, said)
        for content in ([photo, "What is this?"], [{"type": "image", "image": weft.tensor(photo)}, {"type": "text", "text": "What is this?"}]):
            self.assertEqual(model.chat([{"role": "user", "content": content}], **options).result().text, said)
        self.assertNotEqual(model.chat("What is this?", **options).result().text, said)
        with self.assertRaisesRegex(TypeError, "a part is a text"):
            model.chat([("user", [{"type": "image_url", "image_url": "data:"}])])
        with self.assertRaises(TypeError):
            model.chat([("user", [7.5j])])
        plain = llm.load(tiny_media.put_model(self.folder / "plain"), keep_packed=False)
        self.assertFalse(plain.reads_images)
        with self.assertRaisesRegex(weft.UsageError, "reads no images"):
            plain.describe_image(photo, "w1").result()


    def test_the_file_of_a_tower_is_for_gguf_files(self):
        tiny_media.put_vision_model("llava", self.folder / "llava")
        model = llm.load(self.folder / "llava", context=128, keep_packed=False, mmproj="none")
        self.assertTrue(model.reads_images)  # a folder has its own
        self.assertEqual(model.notes, [])
        with self.assertRaisesRegex(weft.UsageError, "leave mmproj out"):
            llm.load(self.folder / "llava", context=128, keep_packed=False, mmproj=self.folder / "mmproj.gguf")


class Speech(Folder):
    def setUp(self):
        super().setUp()
        one = np.asarray(tiny_media.chirp(), "f4")
        self.whole = np.concatenate([one, 0.1 * one, one[::-1]])

    def sound(self, seconds):
        return audio.Sound(self.whole[:int(seconds * 16000)], 16000)

    def test_transcripts_are_those_of_transformers(self):
        golden = tiny_media.put_whisper(self.folder / "whisper")
        self.assertTrue(speech.is_transcriber(self.folder / "whisper") and not speech.is_voice(self.folder / "whisper"))
        model = speech.load_transcriber(self.folder / "whisper")
        self.assertEqual((model.languages, model.is_multilingual), (["en", "de", "fr"], True))
        found = dict(model.detect_language(self.sound(0.98)))
        for code, probability in golden["languages"].items():
            self.assertAlmostEqual(found[code], probability, 4)
        features = model.features(self.sound(0.98))
        states = model.encode(features).numpy()
        self.assertLess(max(abs(states[r, c] - value) for r, c, value in golden["states"]), 1e-4)
        for case in golden["windows"]:
            options = {"language": "de", "temperatures": [0], "condition_on_previous": False, "max_tokens": 16, "no_speech_max": 1}
            seen = []
            transcript = model.transcribe(self.sound(case["seconds"]), on_segment=seen.append, **options)
            # Windows that the sound fills: behind its end, the library pads features with zeros, and Weft with silence.
            whole = sum(i == 0 or case["segments"][i - 1][1] + 1 <= case["seconds"] for i in range(len(case["segments"])))
            made = [[round(s.begin, 4), round(s.end, 4), s.tokens] for s in transcript.segments]
            self.assertGreater(len(made), 0)
            self.assertEqual(made[:whole], case["segments"][:whole])
            self.assertEqual(seen, transcript.segments)
            stream = model.stream(self.sound(case["seconds"]), **options)
            self.assertEqual(list(stream), seen)
            self.assertEqual(stream.result(), transcript)
            self.assertEqual(transcript.to_srt().count(" --> "), len(seen))
            self.assertTrue(transcript.to_vtt().startswith("WEBVTT"))

    def test_recognisers_by_ctc_are_those_of_transformers(self):
        for name in ("wav2vec2 base", "hubert large"):
            golden = tiny_media.put_ctc(self.folder / name, name)
            self.assertTrue(speech.is_transcriber(self.folder / name))
            model = speech.load_transcriber(self.folder / name)
            self.assertEqual((model.kind, model.is_ctc, model.languages), (name.split()[0], True, []))
            sound = audio.Sound(np.concatenate([self.whole, self.whole[::-1]]), 16000)
            logits = model.frame_logits(sound).numpy()
            self.assertEqual(len(logits), golden["frames"])
            self.assertLess(max(abs(logits[r, c] - value) for r, c, value in golden["logits"]), 3e-4)
            transcript = model.transcribe(sound, words=True)
            self.assertEqual(transcript.text, golden["text"])
            words = [[w.text[1:], round(w.begin, 4), round(w.end, 4)] for s in transcript.segments for w in s.words]
            self.assertEqual(words, golden["words"])
            self.assertEqual([s.text for s in model.stream(sound)], [s.text for s in transcript.segments])
            for wrong in (lambda: model.detect_language(sound), lambda: model.features(sound), lambda: model.transcribe(sound, prompt="Weft"),
                          lambda: model.frame_logits(audio.Sound(np.zeros(100, "f4"), 16000))):
                with self.assertRaises(weft.UsageError):
                    wrong()

    def test_moonshine_is_that_of_transformers(self):
        golden = tiny_media.put_moonshine(self.folder / "moon", "base")
        model = speech.load_transcriber(self.folder / "moon")
        self.assertEqual((model.kind, model.is_ctc, model.is_multilingual), ("moonshine", False, False))
        states = model.encode(model.features(self.sound(2.5))).numpy()
        self.assertLess(max(abs(states[r, c] - value) for r, c, value in golden["states"]), 1e-4)
        transcript = model.transcribe(self.sound(2.5), temperatures=[0], max_tokens=30)
        self.assertEqual([s.tokens for s in transcript.segments], [golden["text"][1:]])
        with self.assertRaisesRegex(weft.UsageError, "times of words"):
            model.transcribe(self.sound(1), words=True)

    def test_a_detector_finds_the_speech(self):
        detector = speech.load_detector(tiny_media.tiny_speech.put_detector(self.folder / "ears.onnx"))
        samples = np.zeros(48000, "f4")
        samples[16384:32768] = np.where(np.arange(16384) % 2, 0.03, -0.03)
        sound = audio.Sound(samples, 16000)
        probabilities = detector.probabilities(sound)
        self.assertEqual(len(probabilities), 94)                      # of 512 samples, the last with silence behind it
        self.assertAlmostEqual(probabilities[40], 1.5, 4)
        self.assertAlmostEqual(probabilities[32], 1.5 * 512 / 576, 4)  # it hears 64 samples of the piece before
        ((begin, end),) = detector.spans(sound)
        self.assertAlmostEqual(begin, 16384 / 16000 - 0.03, 6)
        self.assertAlmostEqual(end, 32768 / 16000 + 0.03, 6)
        self.assertEqual(detector.spans(sound, margin=0)[0][0], 16384 / 16000)
        self.assertEqual(detector.spans(sound, speech_min=2), [])
        tiny_media.put_moonshine(self.folder / "moon", "base")
        model = speech.load_transcriber(self.folder / "moon")
        (segment,) = model.transcribe(sound, speech=detector.spans(sound), temperatures=[0], max_tokens=4).segments
        self.assertAlmostEqual(segment.begin, begin, 3)
        with self.assertRaisesRegex(weft.UsageError, "threshold of 2"):
            detector.spans(sound, threshold=2)
        with self.assertRaises(weft.FileError):
            speech.load_detector(self.folder / "none.onnx")

    def test_words_have_times(self):
        tiny_media.put_whisper(self.folder / "whisper")
        model = speech.load_transcriber(self.folder / "whisper")
        options = {"language": "de", "temperatures": [0], "max_tokens": 12, "no_speech_max": 1}
        plain, timed = model.transcribe(self.sound(1.7), **options), model.transcribe(self.sound(1.7), words=True, **options)
        self.assertEqual(timed.text, plain.text)
        self.assertEqual([s.words for s in plain.segments], [[] for _ in plain.segments])
        words = [word for s in timed.segments for word in s.words]
        self.assertGreater(len(words), 0)
        self.assertTrue(all(isinstance(w, speech.Word) and w.begin <= w.end and 0 < w.probability <= 1 for w in words))
        cues = len(words)
        self.assertEqual((timed.to_srt(words="each").count(" --> "), timed.to_vtt("each").count(" --> ")), (cues, cues))
        self.assertEqual(timed.to_vtt("marks").count(" --> "), sum(bool(s.words) for s in timed.segments))
        with self.assertRaisesRegex(weft.UsageError, "none, marks or each"):
            timed.to_srt(words="all")
        mean = lambda **more: model.transcribe(self.sound(0.98), timestamps=False, **{**options, **more}).segments[0].mean_log_probability  # noqa: E731
        self.assertGreaterEqual(mean(beam_size=5), mean())
        self.assertGreater(mean(temperatures=[1], best_of=8), mean(temperatures=[1]))

    def test_streams_stop_and_models_are_not_shared(self):
        tiny_media.put_whisper(self.folder / "whisper")
        model = speech.load_transcriber(self.folder / "whisper")
        long = audio.Sound(np.tile(self.whole, 200), 16000)
        stream = model.stream(long, language="de", temperatures=[0])
        first = next(stream)
        self.assertGreaterEqual(first.begin, 0)
        with self.assertRaisesRegex(weft.UsageError, "in use"):
            model.transcribe(self.sound(1))
        stream.stop()
        rest = list(stream)
        self.assertLess(stream.result().segments[-1].end, long.seconds - 10)
        self.assertEqual(stream.result().segments, [first, *rest])
        self.assertGreater(len(model.detect_language(self.sound(1))), 1)   # free again
        abandoned = model.stream(long, language="de", temperatures=[0])
        next(abandoned)
        del abandoned
        model.transcribe(self.sound(1), language="de")
        # Threads of Python go on meanwhile, and an exception of a function ends the work.
        ticks = []
        timer = threading.Timer(0.01, lambda: ticks.append(1))
        timer.start()

        def fail(segment):
            raise KeyError(segment.text)

        with self.assertRaises(KeyError):
            model.transcribe(long, language="de", temperatures=[0], on_segment=fail)
        timer.join()
        self.assertEqual(ticks, [1])

    def test_wrong_uses(self):
        tiny_media.put_whisper(self.folder / "whisper")
        model = speech.load_transcriber(self.folder / "whisper")
        with self.assertRaisesRegex(weft.UsageError, 'does not know the language "xx"'):
            model.transcribe(self.sound(1), language="xx")
        with self.assertRaisesRegex(weft.UsageError, "no option"):
            model.transcribe(self.sound(1), langauge="de")
        with self.assertRaisesRegex(weft.UsageError, "transcribe or translate"):
            model.transcribe(self.sound(1), task="sing")
        with self.assertRaisesRegex(weft.UsageError, "no option"):
            model.stream(self.sound(1), langauge="de")
        stream = model.stream(self.sound(1), language="xx")
        with self.assertRaisesRegex(weft.UsageError, 'does not know the language "xx"'):
            list(stream)
        with self.assertRaises(weft.FileError):
            speech.load_transcriber(self.folder)
        self.assertEqual((speech.language_name("de"), speech.language_name("xx")), ("german", "xx"))

    def test_voices_are_those_of_transformers(self):
        for name in ("predicted", "speakers"):
            golden = tiny_media.put_voice(self.folder / name, name)
            voice = speech.load_voice(self.folder / name)
            self.assertEqual((voice.rate, voice.encode("it's a weft-loom")), (8000, golden["tokens"]))
            sound = voice.speak("it's a weft-loom", speaker=golden["speaker"], seed=7)
            heard = sound.samples.numpy()[0]
            self.assertEqual((sound.rate, len(heard)), (8000, golden["samples"]))
            self.assertLess(max(abs(heard[at] - value) for at, value in golden["chosen"]), 1e-4)
        sentences = list(voice.stream("Hello there. Hello again.", seed=1))
        self.assertEqual(len(sentences), 2)
        whole = voice.speak("Hello there. Hello again.", seed=1)
        np.testing.assert_array_equal(np.concatenate([s.samples.numpy()[0] for s in sentences]), whole.samples.numpy()[0])
        with self.assertRaises(weft.UsageError):
            voice.speak("123")
        with self.assertRaisesRegex(weft.UsageError, "no option"):
            voice.speak("hello", speed=2)


if __name__ == "__main__":
    unittest.main()
