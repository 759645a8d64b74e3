"""Vision models from Hugging Face folders: embeddings of images and texts in one space (CLIP, SigLIP), and classes of images (ViT).
Models that talk about images are in weft.llm.

    model = weft.vision.load_encoder("clip-vit-base-patch32")
    shares = model.probabilities(model.embed_images([photo]), model.embed_texts(["a cat", "a dog"]))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _weft
from ._types import ArrayLike, DeviceLike
from ._weft import Tensor
from .io import Path

__all__ = ["Classifier", "Encoder", "Label", "load_classifier", "load_encoder"]


class Encoder:
    """A model of two towers: rows of images and rows of texts that mean the same point the same way. One thread at a time."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def embed_images(self, images: Sequence[ArrayLike], *, normalize: bool = True) -> Tensor:
        """A row for each image, f32 [images, width] on the CPU. An image is u8 [height, width, 3], which is resized, cropped and
        normalised as the model's folder says, or f32 [3, side, side], which is taken as it is. Rows have length 1 with `normalize`."""
        return self._native.embed_images(list(images), normalize)

    def embed_texts(self, texts: Sequence[str], *, normalize: bool = True) -> Tensor:
        """A row for each text. UsageError for a text with more tokens than the model's context."""
        return self._native.embed_texts(list(texts), normalize)

    def scores(self, images: ArrayLike, texts: ArrayLike) -> Tensor:
        """The cosines of rows of images [m, width] and of texts [n, width], scaled and shifted as the model has it: [m, n]."""
        return self._native.scores(images, texts)

    def probabilities(self, images: ArrayLike, texts: ArrayLike) -> Tensor:
        """What share of the image each text has: softmax of the scores over the texts for CLIP, their sigmoid for SigLIP."""
        return self._native.probabilities(images, texts)

    @property
    def width(self) -> int:
        return int(self._native.width())

    def __repr__(self) -> str:
        return str(self._native.describe()).rstrip()


@dataclass(frozen=True)
class Label:
    """A class of a classifier, and the share that it has."""

    index: int
    name: str
    probability: float


class Classifier:
    """A classifier of images. One thread at a time."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def logits(self, images: Sequence[ArrayLike]) -> Tensor:
        """The scores of the classes, f32 [images, classes] on the CPU."""
        return self._native.logits(list(images))

    def classify(self, image: ArrayLike, count: int = 5) -> list[Label]:
        """The most probable classes of an image, in order."""
        return [Label(*each) for each in self._native.classify(image, count)]


def load_encoder(folder: Path, *, device: DeviceLike | None = None) -> Encoder:
    """A folder of CLIP or SigLIP: config.json, preprocessor_config.json, tokenizer.json and safetensors. FileError that names file, place
    and cure."""
    return Encoder(_weft._load_encoder(folder, device))


def load_classifier(folder: Path, *, device: DeviceLike | None = None) -> Classifier:
    """A folder of ViT with a head of classes."""
    return Classifier(_weft._load_classifier(folder, device))
