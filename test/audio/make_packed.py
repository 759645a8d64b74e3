"""Small files in packed formats, and what FFmpeg makes of them: make_packed.py writes packed.json for packed_test.cpp.

Made with soundfile 0.14.0 (libsndfile 1.2.2), which writes the files, and FFmpeg 9.0.2 of imageio-ffmpeg 0.8.1, which reads them."""
import io
import json
import pathlib
import subprocess

import imageio_ffmpeg
import numpy as np
import soundfile

RATE = 16000


def signal(channels, frames):
    t = np.arange(frames) / RATE
    return np.stack([0.5 * np.sin(2 * np.pi * (300 + 200 * c + 400 * t) * t) * np.minimum(1, 20 * t) for c in range(channels)], 1)


def saved(samples, **options):
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, **options)
    return file.getvalue()


def heard(data, channels, rate):
    done = subprocess.run([imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", "-i", "-", "-f", "f32le", "-ac", str(channels), "-ar", str(rate), "-"],
                          input=data, capture_output=True, check=True)
    return np.frombuffer(done.stdout, "<f4").reshape(-1, channels)


def main():
    made = []
    for name, channels, rate, options in [
            ("flac-16", 2, RATE, {"format": "FLAC", "subtype": "PCM_16"}), ("flac-24", 1, RATE, {"format": "FLAC", "subtype": "PCM_24"}),
            ("flac-8", 1, RATE, {"format": "FLAC", "subtype": "PCM_S8"}), ("ogg-vorbis", 2, RATE, {"format": "OGG", "subtype": "VORBIS"}),
            ("ogg-opus", 1, 48000, {"format": "OGG", "subtype": "OPUS"}), ("mp3", 1, RATE, {"format": "MP3", "subtype": "MPEG_LAYER_III"})]:
        data = saved(signal(channels, 4000), **options)
        if name == "ogg-opus":
            rate = soundfile.info(io.BytesIO(data)).samplerate
        samples = heard(data, channels, rate)
        rows = [(i * 97) % len(samples) for i in range(60)]
        made.append({"name": name, "file": data.hex(), "channels": channels, "rate": rate, "frames": len(samples),
                     "samples": [[r, *(float(f"{x:.7f}") for x in samples[r])] for r in rows]})
        print(name, len(data), samples.shape, rate)
    # The same MP3 behind a tag, as players write them.
    mp3 = next(each for each in made if each["name"] == "mp3")
    tag = b"ID3\x04\x00\x00\x00\x00\x00\x13" + b"TIT2\x00\x00\x00\x09\x00\x00\x03a title!"
    made.append({**mp3, "name": "mp3-tagged", "file": tag.hex() + mp3["file"]})
    lines = ",\n".join(json.dumps(each) for each in made)
    (pathlib.Path(__file__).parent / "packed.json").write_text(f'{{"files": [\n{lines}\n]}}\n')


main()
