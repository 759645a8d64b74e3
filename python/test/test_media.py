"""Images and sounds, judged by NumPy, the wave module of Python, and by what Pillow, transformers and FFmpeg made of the same files."""
import io
import os
import tempfile
import unittest
import wave

import numpy as np

import tiny_media
import weft
from weft import audio, image


def pixels_of(case, name="pixels"):
    return np.frombuffer(bytes.fromhex(case[name]), "u1").reshape(case["height"], case["width"], 3)


class Images(unittest.TestCase):
    def test_files_have_the_pixels_that_pillow_reads(self):
        files = tiny_media.cases("image/pillow.json")["files"] + tiny_media.cases("image/formats.json")["files"]
        self.assertGreater(len(files), 45)
        with tempfile.TemporaryDirectory() as folder:
            for case in files:
                with self.subTest(case["name"]):
                    data = bytes.fromhex(case["file"])
                    np.testing.assert_array_equal(image.decode(data).numpy(), pixels_of(case))
                    path = os.path.join(folder, case["name"])
                    with open(path, "wb") as file:
                        file.write(data)
                    np.testing.assert_array_equal(np.asarray(image.read(path)), pixels_of(case))

    def test_sizes_have_the_pixels_that_pillow_gives(self):
        for case in tiny_media.cases("image/pillow.json")["resized"]:
            source = np.frombuffer(bytes.fromhex(case["source"]), "u1").reshape(*case["from"], 3)
            made = image.resize(source, *case["to"], case["filter"])
            self.assertEqual(made.numpy().tobytes().hex(), case["result"])
        middle = image.center_crop(np.arange(4 * 5, dtype="f4").reshape(4, 5, 1), 2, 2)
        self.assertEqual(middle.numpy().ravel().tolist(), [6, 7, 11, 12])

    def test_writing(self):
        rng = np.random.default_rng(1)
        picture = rng.integers(0, 256, (9, 14, 3), "u1")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.png")
            image.write(path, picture)
            np.testing.assert_array_equal(image.read(path).numpy(), picture)
            image.write(os.path.join(folder, "a.jpg"), picture, quality=100)
            self.assertLess(np.abs(image.read(os.path.join(folder, "a.jpg")).numpy().astype("f4") - picture).mean(), 6)
            with self.assertRaisesRegex(weft.UsageError, "neither .png"):
                image.write(os.path.join(folder, "a.gif"), picture)
        self.assertLess(len(image.encode(picture, "jpeg", quality=1)), len(image.encode(picture, "jpeg", quality=100)))
        np.testing.assert_array_equal(image.decode(image.encode(picture[:, :, 0])).numpy(), np.repeat(picture[:, :, :1], 3, 2))

    def test_wrong_uses(self):
        with self.assertRaisesRegex(weft.FileError, "not a PNG, JPEG"):
            image.decode(b"no image")
        with self.assertRaises(OSError):
            image.read("none.png")
        with self.assertRaisesRegex(weft.UsageError, "no filter"):
            image.resize(np.zeros((2, 2, 3), "u1"), 2, 2, "box")
        with self.assertRaises(weft.UsageError):
            image.encode(np.zeros((2, 2, 3), "f4"))
        with self.assertRaises(TypeError):
            image.resize("cat.jpg", 2, 2)


class Sounds(unittest.TestCase):
    def setUp(self):
        self.x = np.asarray(tiny_media.chirp(), "f4")

    def test_wave_files(self):
        rng = np.random.default_rng(2)
        samples = rng.integers(-32768, 32768, (300, 2), "i2")
        file = io.BytesIO()
        with wave.open(file, "wb") as out:
            out.setnchannels(2)
            out.setsampwidth(2)
            out.setframerate(22050)
            out.writeframes(samples.tobytes())
        sound = audio.decode(file.getvalue())
        self.assertEqual((sound.channels, sound.frames, sound.rate), (2, 300, 22050))
        self.assertAlmostEqual(sound.seconds, 300 / 22050)
        np.testing.assert_array_equal(sound.samples.numpy(), samples.T / np.float32(32768))
        np.testing.assert_allclose(sound.mono().samples.numpy()[0], samples.mean(1) / 32768, atol=1e-7)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.wav")
            sound.save(path)
            with wave.open(path) as back:
                self.assertEqual(back.readframes(400), samples.tobytes())
            sound.save(path, "f64")
            np.testing.assert_array_equal(audio.load(path).samples.numpy(), sound.samples.numpy())
        self.assertIn("data:audio/wav", sound._repr_html_())

    def test_packed_files_have_the_samples_that_ffmpeg_hears(self):
        for case in tiny_media.cases("audio/packed.json")["files"]:
            with self.subTest(case["name"]):
                sound = audio.decode(bytes.fromhex(case["file"]))
                self.assertEqual((sound.channels, sound.rate), (case["channels"], case["rate"]))
                heard = sound.samples.numpy()
                for row, *values in case["samples"]:
                    if row < sound.frames:
                        np.testing.assert_allclose(heard[:, row], values, atol=1e-7 if "flac" in case["name"] else 1e-3)

    def test_spectra_are_those_of_numpy(self):
        size, hop, width = 256, 100, 200
        window = np.pad(0.54 - 0.46 * np.cos(2 * np.pi * np.arange(width) / width), (size - width) // 2)
        padded = np.pad(self.x.astype("f8"), size // 2, "reflect")
        frames = np.stack([padded[i:i + size] * window for i in range(0, len(padded) - size + 1, hop)])
        wanted = np.fft.rfft(frames)
        spectrum = audio.stft(self.x, size=size, hop=hop, window_size=width, window="hamming")
        np.testing.assert_allclose(spectrum.real.numpy(), wanted.real, atol=2e-4)
        np.testing.assert_allclose(spectrum.imaginary.numpy(), wanted.imag, atol=2e-4)
        np.testing.assert_allclose(audio.power(spectrum).numpy(), np.abs(wanted) ** 2, rtol=1e-3, atol=1e-3)
        back = audio.istft(spectrum, size=size, hop=hop, window_size=width, window="hamming", length=len(self.x))
        np.testing.assert_allclose(back.numpy(), self.x, atol=1e-5)
        slope = weft.grad(lambda x: audio.power(audio.stft(x, size=size, hop=hop)).sum())(weft.tensor(self.x[:1000]))
        self.assertEqual(slope.shape, (1000,))

    def test_features_are_those_of_transformers(self):
        golden = tiny_media.cases("audio/features.json")
        for mels in (80, 128):
            made = audio.log_mel_spectrogram(self.x, mels).numpy()
            self.assertEqual(made.shape, (mels, 100))
            self.assertLess(max(abs(made[m, f] - value) for m, f, value in golden[f"log_mel_{mels}"]), 1e-4)
        for case in golden["filters"]:
            made = audio.mel_filters(mels=case["mels"], size=case["size"], low=case["low"], high=case["high"], rate=case["rate"],
                                     scale=case["scale"], normalized=case["normalized"]).numpy()
            self.assertLess(max(abs(made[m, k] - value) for m, k, value in case["elements"]), 1e-6)
        for scale in ("slaney", "htk"):
            self.assertAlmostEqual(audio.mel_to_hz(audio.hz_to_mel(1234.5, scale), scale), 1234.5, 6)
        self.assertAlmostEqual(audio.hz_to_mel(1000), 15)

    def test_resampling(self):
        t = np.arange(8000) / 8000
        sound = audio.Sound(np.sin(2 * np.pi * 440 * t).astype("f4"), 8000).resample(16000)
        self.assertEqual((sound.rate, sound.frames), (16000, 16000))
        wanted = np.sin(2 * np.pi * 440 * np.arange(16000) / 16000)
        np.testing.assert_allclose(sound.samples.numpy()[0, 500:-500], wanted[500:-500], atol=2e-4)

    def test_wrong_uses(self):
        with self.assertRaisesRegex(weft.FileError, "not a WAV, FLAC"):
            audio.decode(b"no sound")
        for samples, rate, error in (([[1, 2]], 8000, TypeError), (np.zeros((1, 1, 3), "f4"), 8000, weft.ShapeError),
                                     ([0.5, np.nan], 8000, weft.UsageError), ([0.5], 0, weft.UsageError)):
            with self.assertRaises(error):
                audio.Sound(samples, rate)
        with self.assertRaisesRegex(weft.UsageError, "no format of samples"):
            audio.Sound([0.5], 8000).to_wav("mp3")
        with self.assertRaisesRegex(weft.UsageError, "no window"):
            audio.stft(self.x, window="flat")


if __name__ == "__main__":
    unittest.main()
