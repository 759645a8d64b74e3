"""Fine-tuning of language models by low-rank adapters (LoRA)."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import _weft
from .io import Path

_OPTIONS = {"validation", "from_adapter", "precision", "device", "keep_activations", "rank", "alpha", "dropout", "targets", "seed", "accumulate",
            "weight_decay", "clip_norm", "context", "batch", "steps", "epochs", "learning_rate", "warm_up", "log_every", "eval_every",
            "checkpoint_every", "resume", "gguf", "chat_template", "beta", "preference_loss", "label_smoothing"}


@dataclass
class Run:
    """A run that has ended. Its folder is an adapter: `weft.llm.load(model, adapters=[run.folder])`."""

    folder: str
    steps: int
    first_validation: float | None
    last_validation: float | None
    best_validation: float | None
    last_accuracy: float | None
    seconds: float


def run(model: Path, data: Path, out: Path, *, observer: Callable[[dict[str, Any]], Any] | None = None, **options: Any) -> Run:
    """Trains an adapter of a model on examples: lines of JSON with "messages", "prompt" and "completion", or "text"; preferences with
    "prompt", "chosen" and "rejected" (DPO); or a text. The folder `out` gets the adapter as PEFT reads it, metrics, the curve and a checkpoint, from which resume=True goes on.

    Options: rank, alpha, dropout, targets (["q_proj", "v_proj"]; all products of the layers), from_adapter, epochs, steps, context, batch,
    accumulate, learning_rate, warm_up, weight_decay, clip_norm, precision ("f32", "bf16", "f16"), keep_activations, seed, device,
    validation, log_every, eval_every, checkpoint_every, resume, gguf, chat_template; for preferences also beta, preference_loss ("sigmoid",
    "ipo") and label_smoothing. `observer` gets each logged step as a dictionary."""
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"tune.run: unknown option {sorted(unknown)[0]!r}; there are {', '.join(sorted(_OPTIONS))}")
    return Run(os.fspath(out), **_weft._tune(os.fspath(model), os.fspath(data), os.fspath(out), options, observer))
