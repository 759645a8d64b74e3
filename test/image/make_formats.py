"""What Pillow reads from WebP, GIF and BMP files: make_formats.py writes formats.json for formats_test.cpp. Made with Pillow 12.2.0."""
import io
import json
import pathlib
import struct

import numpy as np
from PIL import Image


def photo(height, width, seed):
    """A smooth picture with some noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / (2 + c) + seed) * np.cos(y / (3 + c)) for c in range(3)]
    return np.clip(np.stack(planes, -1) + rng.normal(0, 12, (height, width, 3)), 0, 255).astype(np.uint8)


def saved(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def bmp(width, height, bits, coding, body, palette=b"", masks=b"", colors=0):
    """A file with a header of 40 bytes; rows of `body` from below, as they are in the file."""
    begin = 14 + 40 + len(masks) + len(palette)
    header = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, coding, len(body), 2835, 2835, colors, 0)
    return struct.pack("<2sIHHI", b"BM", begin + len(body), 0, 0, begin) + header + masks + palette + body


def core(width, height, bits, body, palette):
    begin = 14 + 12 + len(palette)
    return struct.pack("<2sIHHI", b"BM", begin + len(body), 0, 0, begin) + struct.pack("<IHHHH", 12, width, height, 1, bits) + palette + body


def files():
    rgb = Image.fromarray(photo(13, 18, 1))
    alpha = rgb.copy()
    alpha.putalpha(Image.fromarray(photo(13, 18, 2)[:, :, 0]))
    more = [Image.fromarray(photo(13, 18, n)) for n in (3, 4)]
    yield "webp-lossy", saved(rgb, "WEBP", quality=80)
    yield "webp-lossless", saved(rgb, "WEBP", lossless=True)
    yield "webp-alpha", saved(alpha, "WEBP", lossless=True, exact=True)
    yield "webp-animated", saved(rgb, "WEBP", lossless=True, save_all=True, append_images=more, duration=100)

    palette = rgb.quantize(16)
    yield "gif-256", saved(rgb, "GIF")
    yield "gif-16", saved(palette, "GIF", interlace=0)
    yield "gif-interlaced", saved(palette, "GIF", interlace=1)
    yield "gif-clear", saved(palette, "GIF", transparency=3)
    yield "gif-animated", saved(rgb, "GIF", save_all=True, append_images=more, duration=100)
    # A first frame that leaves some of its canvas free: 3 x 2 pixels at (4, 1) of 10 x 6, and once with a transparent colour.
    tiny = Image.fromarray(np.array([[0, 1, 2], [3, 2, 1]], np.uint8), "P")
    tiny.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90, 200, 210, 220])
    small = bytearray(saved(tiny, "GIF"))
    small[6:10] = struct.pack("<HH", 10, 6)
    at = small.index(b"\x2c", 13 + 3 * 4)
    small[at + 1:at + 5] = struct.pack("<HH", 4, 1)
    yield "gif-free", bytes(small)
    control = bytes([0x21, 0xF9, 4, 1, 0, 0, 2, 0])
    yield "gif-free-clear", bytes(small[:at]) + control + bytes(small[at:])

    yield "bmp-24", saved(rgb, "BMP")
    yield "bmp-8", saved(palette, "BMP")
    yield "bmp-grey", saved(rgb.convert("L"), "BMP")
    yield "bmp-1", saved(rgb.convert("1"), "BMP")
    yield "bmp-32", saved(alpha, "BMP")
    pixels = np.asarray(rgb).astype(np.uint32)
    words = {"555": (pixels[..., 0] >> 3) << 10 | (pixels[..., 1] >> 3) << 5 | pixels[..., 2] >> 3,
             "565": (pixels[..., 0] >> 3) << 11 | (pixels[..., 1] >> 2) << 5 | pixels[..., 2] >> 3}
    masks = struct.pack("<III", 0xF800, 0x07E0, 0x001F)
    for name, of in words.items():
        body = b"".join(row.astype("<u2").tobytes() for row in of[::-1])  # 18 pixels are whole words
        yield f"bmp-16-{name}", bmp(18, 13, 16, 3 if name == "565" else 0, body, masks=masks if name == "565" else b"")
    down = b"".join(row[:, ::-1].tobytes() + b"\0\0" for row in np.asarray(rgb))
    yield "bmp-top-down", bmp(18, -13, 24, 0, down)
    colors = b"".join(bytes([10 * i, 255 - 9 * i, 7 * i, 0]) for i in range(16))
    nibbles = np.arange(5 * 7).reshape(5, 7) % 16
    rows = b"".join(bytes([*((row[i] << 4) | (row[i + 1] if i + 1 < 7 else 0) for i in range(0, 7, 2))]) for row in nibbles[::-1])
    yield "bmp-4", bmp(7, 5, 4, 0, rows, colors)
    yield "bmp-few-colors", bmp(7, 5, 4, 0, rows, colors[:64], colors=16)
    yield "bmp-core", core(7, 5, 4, rows, b"".join(colors[i:i + 3] for i in range(0, 64, 4)))
    # Runs, pixels as they are, a step over two pixels, and the ends of rows and of the image.
    runs8 = bytes([5, 3, 2, 4, 0, 0, 0, 3, 1, 2, 5, 0, 4, 9, 0, 0, 0, 2, 2, 1, 5, 8, 0, 1])
    yield "bmp-runs-8", bmp(7, 4, 8, 1, runs8, colors, colors=16)
    runs4 = bytes([5, 0x34, 2, 0x55, 0, 0, 0, 4, 0x12, 0x3A, 3, 0x99, 0, 0, 7, 0x21, 0, 1])  # Pillow reads odd counts of 4 bits otherwise
    yield "bmp-runs-4", bmp(7, 3, 4, 2, runs4, colors, colors=16)


def main():
    made = []
    for name, data in files():
        image = Image.open(io.BytesIO(data))
        pixels = np.asarray(image.convert("RGB"))
        made.append({"name": name, "file": data.hex(), "height": pixels.shape[0], "width": pixels.shape[1], "pixels": pixels.tobytes().hex()})
    lines = ",\n".join(json.dumps(each) for each in made)
    (pathlib.Path(__file__).parent / "formats.json").write_text(f'{{"files": [\n{lines}\n]}}\n')


main()
