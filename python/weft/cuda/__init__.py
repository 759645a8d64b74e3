"""What programs for PyTorch ask of CUDA. Weft reaches GPUs through WebGPU: weft.devices() lists them, and x.to("webgpu") moves there."""

from __future__ import annotations

from .._making import manual_seed as manual_seed
from .._weft import synchronize as synchronize
from . import amp as amp


def is_available() -> bool:
    """False: weft.devices() tells whether there is a GPU."""
    return False


def device_count() -> int:
    return 0


def empty_cache() -> None:
    """Does nothing."""


manual_seed_all = manual_seed
