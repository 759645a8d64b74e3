"""Mixed precision under the name of PyTorch before 2.4."""

from __future__ import annotations

from typing import Any

from .. import amp
from ..amp import autocast as autocast


def GradScaler(init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5, growth_interval: int = 2000,
               enabled: bool = True) -> Any:
    """weft.amp.GradScaler without a device."""
    return amp.GradScaler("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
