"""What Pillow and torchvision make of small images: make.py [FILE].

Writes image files with the pixels that Pillow reads from them, and images resized by every filter. image_test.cpp compares Weft
with them. Made with Pillow 12.2.0 and torchvision 0.29.2. (Pillow 13 resizes
rows before columns where that is less work, which changes some bytes by one.)
"""
import io
import json
import pathlib
import sys

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms.v2 import functional as tv

FILTERS = {"nearest": Image.NEAREST, "bilinear": Image.BILINEAR, "bicubic": Image.BICUBIC, "lanczos": Image.LANCZOS}


def text(data):
    return bytes(data).hex()


def photo(height, width, seed):
    """A smooth picture with some noise and sharp edges."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / (2 + c) + seed) * np.cos(y / (3 + c)) for c in range(3)]
    picture = np.stack(planes, -1) + rng.normal(0, 12, (height, width, 3))
    picture[height // 3: height // 2, width // 4: width // 2] = (255, 0, 40)
    return np.clip(picture, 0, 255).astype(np.uint8)


def files():
    rgb = Image.fromarray(photo(13, 17, 1))
    alpha = rgb.copy()
    alpha.putalpha(Image.fromarray(photo(13, 17, 2)[:, :, 0]))
    palette = rgb.quantize(16)
    clear = palette.copy()
    clear.info["transparency"] = 3
    sixteen = Image.fromarray((photo(9, 8, 3)[:, :, 0].astype(np.uint16) * 257))
    large = Image.fromarray(photo(37, 29, 4))
    exif = lambda n: {"exif": (lambda e: (e.__setitem__(0x0112, n), e)[1])(Image.Exif())}
    yield "png-rgb", rgb, "PNG", {}
    yield "png-grey", rgb.convert("L"), "PNG", {}
    yield "png-bits", rgb.convert("1"), "PNG", {}
    yield "png-alpha", alpha, "PNG", {}
    yield "png-grey-alpha", alpha.convert("LA"), "PNG", {}
    yield "png-palette", palette, "PNG", {}
    yield "png-palette-clear", clear, "PNG", {}
    yield "png-16", sixteen, "PNG", {}
    yield "jpeg-420", large, "JPEG", {"quality": 75}
    yield "jpeg-444", large, "JPEG", {"quality": 95, "subsampling": 0}
    yield "jpeg-422", large, "JPEG", {"quality": 60, "subsampling": 1}
    yield "jpeg-grey", large.convert("L"), "JPEG", {}
    yield "jpeg-progressive", large, "JPEG", {"progressive": True, "quality": 80}
    yield "jpeg-exif-little", large, "JPEG", exif(6)
    for n in range(1, 9):
        yield f"jpeg-exif-{n}", rgb, "JPEG", exif(n)


def main():
    out = {"files": [], "resized": [], "floats": []}
    for name, image, kind, options in files():
        buffer = io.BytesIO()
        image.save(buffer, kind, **options)
        if "little" in name:  # Pillow writes big-endian directories; cameras often write little-endian ones
            buffer = io.BytesIO(buffer.getvalue().replace(
                b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0"))
        read = Image.open(buffer)
        if read.mode == "I;16":  # Pillow's own conversion cuts off at 255
            pixels = np.repeat((np.asarray(read) // 257).astype(np.uint8)[:, :, None], 3, 2)
        else:
            pixels = np.asarray(ImageOps.exif_transpose(read).convert("RGB"))
        out["files"].append({"name": name, "file": text(buffer.getvalue()), "height": pixels.shape[0],
                             "width": pixels.shape[1], "pixels": text(pixels.tobytes())})
    for index, (size, target) in enumerate([((13, 17), (7, 5)), ((13, 17), (29, 31)), ((40, 6), (9, 6)), ((5, 33), (5, 11)),
                                            ((1, 1), (3, 2)), ((23, 23), (1, 1)), ((48, 50), (14, 45))]):
        source = photo(*size, 10 + index)
        for name, kind in FILTERS.items():
            result = np.asarray(Image.fromarray(source).resize(target[::-1], kind))
            out["resized"].append({"filter": name, "from": size, "to": target, "source": text(source.tobytes()),
                                   "result": text(result.tobytes())})
        floats = torch.from_numpy(source.astype(np.float32) / 255).permute(2, 0, 1)
        for name in ("bilinear", "bicubic"):
            result = tv.resize(floats, list(target), getattr(tv.InterpolationMode, name.upper()), antialias=True)
            out["floats"].append({"filter": name, "case": index * len(FILTERS), "to": target,
                                  "result": [round(v, 7) for v in result.permute(1, 2, 0).flatten().tolist()[:200]]})
    path = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).with_name("pillow.json")
    path.write_text(json.dumps(out, indent=None, separators=(",", ":")).replace('{"name"', '\n{"name"').replace('{"filter"', '\n{"filter"') + "\n")


main()
