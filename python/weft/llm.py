"""Language models from GGUF files and Hugging Face folders."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Union

from . import _weft
from ._types import DeviceLike
from ._weft import Tensor, Tokenizer
from .io import Path

__all__ = ["Generation", "Model", "Result", "Tokenizer", "load"]

Message = Union[Mapping[str, str], "tuple[str, str]"]


@dataclass
class Result:
    """A generation that has ended."""

    text: str
    finish: str  #: "end_of_text", "stop_text", "length" or "cancelled"
    prompt_tokens: int
    reused_tokens: int
    tokens: list[int]
    prompt_seconds: float
    seconds: float
    log_probabilities: list[float] = field(default_factory=list)


class Generation:
    """Text while it is generated: iterate over its pieces, or ask for the result."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        piece: str = self._stream.__next__()
        return piece

    def result(self) -> Result:
        """Runs the generation to its end."""
        return Result(**self._stream.result())

    def __str__(self) -> str:
        return self.result().text


def _messages(messages: Sequence[Message] | str) -> list[tuple[str, str]]:
    if isinstance(messages, str):
        return [("user", messages)]
    pairs = []
    for each in messages:
        role, content = (each["role"], each["content"]) if isinstance(each, Mapping) else each
        pairs.append((role, content))
    return pairs


_OPTIONS = {"max_tokens", "temperature", "top_k", "top_p", "min_p", "typical", "repetition_penalty", "frequency_penalty",
            "presence_penalty", "stop", "draft", "parse_special", "log_probabilities", "seed"}


def _options(options: dict[str, Any]) -> dict[str, Any]:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"generate: unknown option {sorted(unknown)[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    if isinstance(options.get("stop"), str):
        options = {**options, "stop": [options["stop"]]}
    return options


class Model:
    """A language model on its device. One thread at a time; Python's other threads run while it computes."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def generate(self, prompt: str, **options: Any) -> Generation:
        """Continues a text. Options: max_tokens, temperature, top_k, top_p, min_p, typical, repetition_penalty,
        frequency_penalty, presence_penalty, stop, seed, draft, log_probabilities, parse_special."""
        return Generation(self._native.generate(prompt, _options(options)))

    def chat(self, messages: Sequence[Message] | str, *, tools: Any = None, variables: Mapping[str, Any] | None = None,
             **options: Any) -> Generation:
        """The reply to a conversation: [{"role": "user", "content": "Hello"}], or a text of the user. Options as generate."""
        return Generation(self._native.chat(_messages(messages), _options(options), json.dumps(tools) if tools else "",
                                            json.dumps(dict(variables)) if variables else ""))

    def generate_batch(self, prompts: Sequence[str], **options: Any) -> list[Result]:
        """Several prompts, as many in parallel as `sequences` of load() says."""
        return [Result(**each) for each in self._native.generate_batch(list(prompts), _options(options))]

    def forward(self, tokens: Sequence[int]) -> Tensor:
        """Logits after each of the tokens, [tokens, vocabulary]."""
        return self._native.forward(list(tokens))

    def perplexity(self, text: str, window: int = 0) -> float:
        """How well the model predicts a text."""
        return float(self._native.perplexity(text, window))

    def render(self, messages: Sequence[Message] | str) -> str:
        """The text of a conversation, written with the model's template."""
        return str(self._native.render(_messages(messages)))

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        return list(self._native.encode(text, add_special))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._native.decode(list(tokens)))

    @property
    def vocabulary(self) -> int:
        return int(self._native.vocabulary)

    @property
    def context(self) -> int:
        """Positions kept of each sequence."""
        return int(self._native.context)

    @property
    def has_template(self) -> bool:
        return bool(self._native.has_template)

    def __repr__(self) -> str:
        return str(self._native.describe()).rstrip()


def load(path: Path, *, context: int = 0, sequences: int = 1, cache: str = "f32", exact: bool = False,
         device: DeviceLike | None = None) -> Model:
    """Loads a GGUF file, or a folder with config.json, tokenizer.json and safetensors. context 0: as much as the model was
    trained for, or as fits."""
    return Model(_weft._load_model(path, context, sequences, cache, exact, device))
