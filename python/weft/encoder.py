"""Text encoders: models that see a text in both directions, such as BERT. They embed texts (sentence-transformers), order documents by a
question (cross-encoders), name the class of a text or of its tokens, and fill masks.

    model = weft.encoder.load("bge-small-en-v1.5")
    rows = model.embed(["The whale was white.", "Der Wal war weiß."])
    reranker = weft.encoder.load("bge-reranker-base")
    for hit in reranker.rerank("What is a panda?", documents, 3):
        print(documents[hit.index], hit.score)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import _weft
from ._types import DeviceLike
from ._weft import Tensor
from .io import Path

__all__ = ["Answer", "Entity", "Fill", "Label", "Model", "Ranked", "TokenLabel", "load"]


@dataclass(frozen=True)
class Label:
    """A class of a text."""

    index: int
    name: str
    probability: float


@dataclass(frozen=True)
class Ranked:
    """A document's place in an order: the logit, and its sigmoid; of models with several classes, the share of the last one."""

    index: int
    score: float
    probability: float


@dataclass(frozen=True)
class TokenLabel:
    """A token with its most probable class; `text` is what it adds in the middle of a text."""

    token: int
    text: str
    label: Label


@dataclass(frozen=True)
class Entity:
    """Neighbouring tokens with one class, "B-" and "I-" before its name left out."""

    name: str
    text: str
    probability: float
    first_token: int
    tokens: int


@dataclass(frozen=True)
class Fill:
    """A token for a mask."""

    token: int
    text: str
    probability: float


@dataclass(frozen=True)
class Answer:
    """A part of a text that answers a question, with its place in the text's UTF-8; an empty one says that there is none."""

    text: str
    begin: int
    end: int
    probability: float


class Model:
    """A text encoder on its device. One thread at a time."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def embed(self, texts: Sequence[str], *, prompt: str | None = None, normalize: bool = True, width: int = 0, cut: bool = False) -> Tensor:
        """A row for each text, f32 [texts, width] on the CPU, pooled as the model's files say. `prompt`: the name of one of the model's
        prompts. `width`: the first columns alone. A text with more tokens than `length` is an error, unless it may be cut."""
        return self._native.embed(list(texts), prompt, normalize, width, cut)

    def states(self, text: str) -> Tensor:
        """The states behind the last layer, f32 [tokens, hidden]."""
        return self._native.states(text)

    def logits(self, texts: Sequence[str], pairs: Sequence[str] = (), *, cut: bool = False) -> Tensor:
        """Scores of classes, f32 [texts, classes]; with `pairs`, of texts with these behind them."""
        return self._native.logits(list(texts), list(pairs), cut)

    def classify(self, text: str, count: int = 5, *, pair: str = "", cut: bool = False) -> list[Label]:
        """The most probable classes of a text, or of a pair of texts, in order."""
        return [Label(*each) for each in self._native.classify(text, count, pair, cut)]

    def rerank(self, query: str, documents: Sequence[str], count: int = 0) -> list[Ranked]:
        """Documents by how well they answer the query, the best first; 0: all. Documents that are too long are cut."""
        return [Ranked(*each) for each in self._native.rerank(query, list(documents), count)]

    def label_tokens(self, text: str) -> list[TokenLabel]:
        """The tokens of a text with their classes."""
        return [TokenLabel(token, piece.decode("utf-8", "replace"), Label(*label)) for token, piece, *label in self._native.label_tokens(text)]

    def entities(self, text: str) -> list[Entity]:
        """Those tokens joined where they name one thing."""
        return [Entity(*each) for each in self._native.entities(text)]

    def fill_masks(self, text: str, count: int = 5) -> list[list[Fill]]:
        """For each mask in the text the most probable tokens."""
        return [[Fill(token, piece.decode("utf-8", "replace"), p) for token, piece, p in fills] for fills in self._native.fill_masks(text, count)]

    def answer(
        self, question: str, text: str, count: int = 1, *, longest: int = 15, window: int = 384, stride: int = 128, may_be_none: bool = False
    ) -> list[Answer]:
        """The parts of a text that most probably answer a question, in order. `longest`: most tokens of an answer. A text that is too long is
        read in windows of so many tokens, question included, that share `stride` tokens of it."""
        return [Answer(*each) for each in self._native.answer(question, text, count, longest, window, stride, may_be_none)]

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, with those that the model expects around it."""
        return self._native.encode(text)

    @property
    def task(self) -> str:
        """What the head is for: "embed texts", "classify texts", "label tokens", "fill masks" or "find answers"."""
        return str(self._native.task())

    @property
    def mask(self) -> str:
        return str(self._native.mask())

    @property
    def width(self) -> int:
        return int(self._native.width())

    @property
    def length(self) -> int:
        """Most tokens of a text."""
        return int(self._native.length())

    @property
    def classes(self) -> list[str]:
        return list(self._native.classes())

    @property
    def prompts(self) -> dict[str, str]:
        return dict(self._native.prompts())

    def __repr__(self) -> str:
        return str(self._native.describe())


def load(path: Path, *, device: DeviceLike | None = None, length: int = 0, precision: str = "f32") -> Model:
    """A Hugging Face or sentence-transformers folder, or a GGUF file. `length`: most tokens of a text; 0: as the model's files say.
    `precision`: f16 or bf16 for products and attention on tensor cores, with sums in f32.
    FileError that names file, place and cure."""
    return Model(_weft._load_text_encoder(path, device, length, precision))
