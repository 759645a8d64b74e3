"""Language models from GGUF files and Hugging Face folders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Union

from . import _weft
from ._types import ArrayLike, DeviceLike
from ._weft import Tensor, Tokenizer
from .io import Path

__all__ = ["Generation", "Model", "ModelPart", "Result", "Tokenizer", "load"]

Message = Union[Mapping[str, Any], "tuple[str, str]"]


@dataclass
class Result:
    """A generation that has ended."""

    text: str
    finish: str  #: "end of text", "stop text", "length" or "cancelled"
    prompt_tokens: int
    reused_tokens: int  #: tokens of the prompt that were in the cache
    tokens: list[int]
    prompt_seconds: float
    seconds: float
    stop_text: str = ""  #: the stop text that ended it
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    log_probabilities: list[float] = field(default_factory=list)
    #: for each token the most probable ones in its place with their log-probabilities, if top_log_probabilities asked for them
    top: list[list[tuple[int, float]]] = field(default_factory=list)


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


def _parts(content: Sequence[Any]) -> list[Any]:
    """Texts and images, from those, and from the parts of OpenAI's messages."""
    parts = []
    for part in content:
        if isinstance(part, Mapping):
            kind = part.get("type", "image" if "image" in part else "text")
            if kind not in ("text", "image") or kind not in part or set(part) - {"type", kind}:
                raise TypeError('chat: a part is a text, an image, {"type": "text", "text": ...} or {"type": "image", "image": ...}')
            part = part[kind]
        parts.append(part)
    return parts


def _messages(messages: Sequence[Message] | str) -> list[dict[str, Any]]:
    if isinstance(messages, str):
        return [{"role": "user", "content": messages}]
    known = {"role", "content", "reasoning", "tool_calls", "name", "tool_call_id"}
    made = []
    for each in messages:
        message: dict[str, Any] = dict(each) if isinstance(each, Mapping) else {"role": each[0], "content": each[1]}
        if not {"role", "content"} <= set(message) <= known:
            raise TypeError(f"chat: a message has role and content, and perhaps {', '.join(sorted(known - {'role', 'content'}))}; "
                            f"given {', '.join(message)}")
        if not isinstance(message["content"], str):
            message["content"], message["parts"] = "", _parts(message["content"])
        if not isinstance(message.get("tool_calls", ""), str):
            message["tool_calls"] = json.dumps(message["tool_calls"])
        made.append(message)
    return made


def _chat(tools: Any, documents: Any, variables: Mapping[str, Any] | None, template_name: str) -> dict[str, str]:
    given = {"tools": tools, "documents": documents, "variables": dict(variables) if variables else None}
    return {"template_name": template_name, **{key: json.dumps(value) for key, value in given.items() if value}}


_OPTIONS = {"max_tokens", "temperature", "top_k", "top_p", "min_p", "typical", "repetition_penalty", "frequency_penalty",
            "presence_penalty", "penalty_window", "logit_bias", "stop", "draft", "parse_special", "log_probabilities",
            "top_log_probabilities", "seed"}


def _options(options: dict[str, Any]) -> dict[str, Any]:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"generate: unknown option {sorted(unknown)[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    options = dict(options)
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    if isinstance(options.get("logit_bias"), Mapping):
        options["logit_bias"] = list(options["logit_bias"].items())
    return options


class Model:
    """A language model on its device. One thread at a time; Python's other threads run while it computes."""

    def __init__(self, native: Any) -> None:
        self._native = native

    def generate(self, prompt: str | Sequence[int], **options: Any) -> Generation:
        """Continues a text, or tokens. Options: max_tokens, temperature, top_k, top_p, min_p, typical, repetition_penalty,
        frequency_penalty, presence_penalty, penalty_window, logit_bias {token: bias}, stop, seed, draft, log_probabilities,
        top_log_probabilities, parse_special."""
        return Generation(self._native.generate(prompt if isinstance(prompt, str) else list(prompt), _options(options)))

    def chat(self, messages: Sequence[Message] | str, *, tools: Any = None, documents: Any = None,
             variables: Mapping[str, Any] | None = None, template_name: str = "", **options: Any) -> Generation:
        """The reply to a conversation: [{"role": "user", "content": "Hello"}], or a text of the user. The content may be a list of
        texts and images: ["What is this?", weft.image.read("cat.jpg")], where an image is u8 [height, width, 3]. A message may also have
        reasoning, tool_calls, name and tool_call_id. `tools`, `documents` and `variables` are for the model's template. Options
        as generate."""
        return Generation(self._native.chat(_messages(messages), _options(options),
                                            _chat(tools, documents, variables, template_name)))

    def describe_image(self, image: ArrayLike, prompt: str = "Describe the image.", *, template_name: str = "",
                       **options: Any) -> Generation:
        """What the model says about an image u8 [height, width, 3]. UsageError for a model that reads no images. Options as generate."""
        return Generation(self._native.describe_image(image, prompt, _options(options), _chat(None, None, None, template_name)))

    def generate_batch(self, prompts: Sequence[str], **options: Any) -> list[Result]:
        """Several prompts, as many in parallel as `sequences` of load() says."""
        return [Result(**each) for each in self._native.generate_batch(list(prompts), _options(options))]

    def embed(self, texts: str | Sequence[str], *, pooling: Literal["mean", "last"] = "mean", normalize: bool = True,
              add_special: bool = True) -> Tensor:
        """A row for each text, f32 [texts, width]; of a single text, its row. It is the mean of the model's states before the head,
        or the state of the last token, which has seen all others. Rows have length 1 with `normalize`, so that products of rows
        are cosines. `sequences` texts of load() share passes."""
        one = isinstance(texts, str)
        rows: Tensor = self._native.embed([texts] if isinstance(texts, str) else list(texts), pooling, normalize, add_special)
        return rows[0] if one else rows

    def forward(self, tokens: Sequence[int]) -> Tensor:
        """Logits after each of the tokens, [tokens, vocabulary]."""
        return self._native.forward(list(tokens))

    def perplexity(self, text: str, window: int = 0) -> float:
        """How well the model predicts a text."""
        return float(self._native.perplexity(text, window))

    def render(self, messages: Sequence[Message] | str, *, tools: Any = None, documents: Any = None,
               variables: Mapping[str, Any] | None = None, template_name: str = "") -> str:
        """The text of a conversation, written with the model's template."""
        return str(self._native.render(_messages(messages), _chat(tools, documents, variables, template_name)))

    def chat_tokens(self, messages: Sequence[Message] | str, *, tools: Any = None, documents: Any = None,
                    variables: Mapping[str, Any] | None = None, template_name: str = "") -> list[int]:
        """Its tokens: the prompt of chat()."""
        return list(self._native.chat_tokens(_messages(messages), _chat(tools, documents, variables, template_name)))

    def encode(self, text: str, add_special: bool = True) -> list[int]:
        return list(self._native.encode(text, add_special))

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._native.decode(list(tokens)))

    def tokenizer(self) -> Tokenizer:
        """The tokenizer, which may outlive the model."""
        return self._native.tokenizer()

    @property
    def end_tokens(self) -> list[int]:
        """Tokens that end a generation."""
        return list(self._native.end_tokens)

    @property
    def vocabulary(self) -> int:
        return int(self._native.vocabulary)

    @property
    def width(self) -> int:
        """Elements of the state of a token."""
        return int(self._native.width)

    @property
    def device(self) -> _weft.device:
        """Of several, the first."""
        return self._native.device

    @property
    def parts(self) -> list[ModelPart]:
        """What each device has; one part for a model on one device."""
        return [ModelPart(*part) for part in self._native.parts]

    @property
    def trained_context(self) -> int:
        """Positions that the model was trained for."""
        return int(self._native.trained_context)

    @property
    def context(self) -> int:
        """Positions kept of each sequence."""
        return int(self._native.context)

    @property
    def has_template(self) -> bool:
        return bool(self._native.has_template)

    @property
    def reads_images(self) -> bool:
        return bool(self._native.reads_images)

    @property
    def notes(self) -> list[str]:
        """What there is to know of how its files were read, a sentence each."""
        return [str(note) for note in self._native.notes]

    def __repr__(self) -> str:
        return str(self._native.describe()).rstrip()


class ModelPart(NamedTuple):
    """What one device has of a model: the layers from `first_layer` on, `layers` of them."""

    device: _weft.device
    first_layer: int
    layers: int
    weight_bytes: int
    cache_bytes: int


def load(path: Path, *, context: int = 0, sequences: int = 1, cache: Literal["f32", "f16", "q8"] = "f32", exact: bool = False,
         whole_cache: bool = False, keep_packed: bool = True, device_memory: int = 0, chat_template: str = "",
         mmproj: Path = "", adapters: Sequence[Path | tuple[Path, float]] = (), merge_adapters: bool = False,
         device: DeviceLike | Sequence[DeviceLike] | None = None, split: Sequence[float] = (), layers: Sequence[int] = (),
         progress: Callable[[int, int], Any] | None = None) -> Model:
    """Loads a GGUF file, or a folder with config.json, tokenizer.json and safetensors.

    context        positions of each sequence; 0: as many as the model was trained for, or as fit
    sequences      prompts that run in parallel
    exact          products of weights in blocks use f32 activations: slower, but more exact
    whole_cache    layers with a window keep all positions too
    keep_packed    packed weights stay in the cache folder, and are mapped from there the next time
    device_memory  bytes that weights and cache may take together (of several devices: on each GPU); 0: no such limit
    chat_template  its text, in place of the model's own
    mmproj         of a GGUF file: the file with the part of the model that sees images; "": one beside the model, if it fits;
                   "none": none
    adapters       low-rank changes of the model (weft.tune, PEFT, GGUF): paths, or pairs of a path and a scale
    merge_adapters  add them to the matrices while they are read: tokens then cost what they cost without, but matrices in blocks become F16
    device         one, or several that divide the layers in this order: ["webgpu:0", "cpu"]
    split          shares of several devices in the bytes: [3, 1]; by default equal
    layers         in place of shares, layers of each device; the last may be left out, and that device takes the rest
    progress       progress(done, total) gets bytes of weights
    """
    options = {"context": context, "sequences": sequences, "cache": cache, "exact": exact, "whole_cache": whole_cache,
               "keep_packed": keep_packed, "device_memory": device_memory, "chat_template": chat_template, "mmproj": str(mmproj), "device": device,
               "merge_adapters": merge_adapters, "split": list(split), "layers": list(layers),
               "adapters": [(str(a[0]), float(a[1])) if isinstance(a, tuple) else (str(a), 1.0) for a in adapters]}
    return Model(_weft._load_model(path, options, progress))
