"""Images as tensors u8 [height, width, 3]: files, sizes and crops.

    photo = weft.image.read("cat.jpg")
    weft.image.write("small.png", weft.image.resize(photo, 224, 224))

Arrays of NumPy are images too, and np.asarray(photo) is one. numpy.asarray(picture) makes one of a picture of Pillow.
"""

from __future__ import annotations

from typing import Literal

from . import _weft
from ._types import ArrayLike
from ._weft import Tensor
from .io import Path

__all__ = ["Filter", "center_crop", "decode", "encode", "read", "resize", "write"]

Filter = Literal["nearest", "bilinear", "bicubic", "lanczos"]


def read(path: Path) -> Tensor:
    """The image in a PNG, JPEG, WebP, GIF or BMP file as u8 [height, width, 3]; of an animation the first frame. Transparency is
    dropped, grey and palettes become RGB, and a JPEG file is turned as its Exif orientation says. FileError for a damaged file, another
    format, and sizes above 2^26 pixels; UsageError for a format that this build was made without."""
    return _weft._image_read(path)


def decode(data: bytes | bytearray | memoryview) -> Tensor:
    """The same from the bytes of a file."""
    return _weft._image_decode(bytes(data))


def write(path: Path, image: ArrayLike, *, quality: int = 90) -> None:
    """Writes u8 [height, width, 3], or [height, width] for grey, as PNG or JPEG: the suffix is .png, .jpg or .jpeg. `quality` is of JPEG,
    1 to 100. The file appears whole or not at all. UsageError for another suffix, shape or dtype."""
    _weft._image_write(path, image, quality)


def encode(image: ArrayLike, format: Literal["png", "jpeg"] = "png", *, quality: int = 90) -> bytes:
    """The bytes of such a file."""
    return bytes(_weft._image_encode(image, format, quality))


def resize(image: ArrayLike, height: int, width: int, filter: Filter = "bicubic") -> Tensor:
    """The image in another size, u8 or f32 [height, width, channels], with the weights and roundings of Pillow (up to version 12): each
    pixel is a weighted mean of those around it, of more of them where the image shrinks."""
    return _weft._image_resize(image, height, width, filter)


def center_crop(image: ArrayLike, height: int, width: int) -> Tensor:
    """The middle of an image, with zeros around one that is smaller. u8 or f32 [height, width, channels]."""
    return _weft._image_center_crop(image, height, width)
