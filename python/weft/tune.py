"""Fine-tuning of language models, by low-rank adapters (LoRA) or of all weights, and of text encoders."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _weft
from .io import Path

_OPTIONS = {"validation", "from_adapter", "precision", "device", "keep_activations", "rank", "alpha", "dropout", "dora", "full", "targets", "seed",
            "accumulate", "optimizer", "optimizer_options",
            "weight_decay", "clip_norm", "context", "batch", "steps", "epochs", "learning_rate", "warm_up", "log_every", "eval_every",
            "checkpoint_every", "resume", "gguf", "chat_template", "device_memory", "beta", "preference_loss", "label_smoothing",
            "balance", "save_modules", "schedule", "objective", "scale", "model_dropout"}


@dataclass
class Run:
    """A run that has ended. Its folder is an adapter: `weft.llm.load(model, adapters=[run.folder])`. That of a text encoder holds the
    folders "model" and "best": `weft.encoder.load(run.folder + "/best")`."""

    folder: str
    steps: int
    first_validation: float | None
    last_validation: float | None
    best_validation: float | None
    last_accuracy: float | None
    last_f1: float | None
    last_spearman: float | None
    seconds: float


@dataclass
class Need:
    """What a run takes, in bytes where nothing else is said."""

    steps: int  # updates
    examples: int  # or preferences
    parameters: int  # numbers that train
    weights: int  # of the model, as the device holds them
    trained: int  # what trains, AdamW's moments, and the sum of gradients of a run that accumulates
    step: int  # gradients, activations and scratch, as planned
    validation: int  # activations and scratch, as planned
    total: int
    available: int | None  # device_memory, or what the CPU has free
    fits: bool
    largest_batch: int | None  # that fits; 0: none


def _check(options: dict[str, Any], function: str) -> None:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"tune.{function}: unknown option {sorted(unknown)[0]!r}; there are {', '.join(sorted(_OPTIONS))}")


def _as_texts(options: dict[str, Any]) -> dict[str, Any]:
    given = options.get("optimizer_options") or {}
    return {**options, "optimizer_options": [f"{name}={str(value).lower()}" for name, value in given.items()]}


def need(model: Path, data: Path, **options: Any) -> Need:
    """What `run` with the same options would take. The data is read and a step is planned; no weight is read, and nothing is written."""
    _check(options, "need")
    return Need(**_weft._tune_need(os.fspath(model), os.fspath(data), _as_texts(options)))


def run(model: Path, data: Path, out: Path, *, observer: Callable[[dict[str, Any]], Any] | None = None, **options: Any) -> Run:
    """Trains an adapter of a model on examples: lines of JSON with "messages", "prompt" and "completion", or "text"; preferences with
    "prompt", "chosen" and "rejected" (DPO); or a text. The folder `out` gets the adapter as PEFT reads it, metrics, the curve and a
    checkpoint, from which resume=True goes on.

    Options: rank, alpha, dropout, dora, targets (["q_proj", "v_proj"]; all products of the layers), save_modules (["embed_tokens", "lm_head"]: modules that train as a
    whole), from_adapter; or full (all weights train,
    and the folder "model" in `out` is a model); epochs, steps, context, batch, accumulate, learning_rate, warm_up, optimizer (a name as "lion"),
    optimizer_options (a dictionary), weight_decay, clip_norm,
    precision ("f32", "bf16", "f16"), keep_activations, seed, device, device_memory, validation, log_every, eval_every, checkpoint_every,
    resume, gguf, chat_template; for preferences also beta, preference_loss ("sigmoid", "ipo") and label_smoothing; for models with
    experts also balance, the factor of the loss that keeps them in use alike; schedule ("cosine", "linear", "constant").

    A text encoder learns lines with "text" and "label" (or "labels"), "tokens" and "labels", "anchor", "positive" and "negative", or
    "sentence1", "sentence2" and "score"; all of its weights train. Its options: objective ("single-label", "multi-label", "regression",
    "tokens", "ranking", "cosine", "cosent", "cross-encoder"; as the lines say), scale (20, of cosines), model_dropout (True: as
    config.json says), context (the most tokens of a text), and those above that are not of adapters, preferences and experts. `observer` gets each logged step as a dictionary."""
    _check(options, "run")
    return Run(os.fspath(out), **_weft._tune(os.fspath(model), os.fspath(data), os.fspath(out), _as_texts(options), observer))
