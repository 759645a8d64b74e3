"""Weft: tensors and neural networks on the CPU and, through WebGPU, on any GPU.

A Tensor is a value that is computed when it is asked for. A Variable is state. Every op of the table is a
function here and a method of Tensor, with the names of PyTorch and NumPy.
"""

from __future__ import annotations

import math
import os
from typing import Any

from . import amp as amp
from . import audio as audio
from . import autograd as autograd
from . import cuda as cuda
from . import distributions as distributions
from . import func as func
from . import grid as grid
from . import image as image
from . import encoder as encoder
from . import io as io
from . import linalg as linalg
from . import llm as llm
from . import memory as memory
from . import metatensor as metatensor
from . import models as models
from . import nn as nn
from . import onnx as onnx
from . import operations as operations
from . import optim as optim
from . import speech as speech
from . import testing as testing
from . import train as train
from . import trees as trees
from . import tune as tune
from . import utils as utils
from . import vision as vision
from . import workflow as workflow
from ._compile import Compiled as Compiled
from ._compile import compile as compile
from ._ops import *  # noqa: F403  every op of the table
from ._ops import op_names as op_names
from ._tensor import (
    Size as Size,
    ValuesAndIndices as ValuesAndIndices,
    asarray as asarray,
    bitwise_invert as bitwise_invert,
    clamp as clamp,
    clip as clip,
    default_device as default_device,
    dsplit as dsplit,
    empty_like as empty_like,
    expand as expand,
    from_dlpack as from_dlpack,
    from_numpy as from_numpy,
    full_like as full_like,
    hsplit as hsplit,
    matrix_transpose as matrix_transpose,
    max as max,
    min as min,
    norm as norm,
    ones_like as ones_like,
    permute_dims as permute_dims,
    ravel as ravel,
    register_kernel as register_kernel,
    round as round,
    scatter as scatter,
    scatter_add as scatter_add,
    set_default_device as set_default_device,
    size as size,
    split as split,
    squeeze as squeeze,
    t as t,
    take as take,
    tensor as tensor,
    tensor_split as tensor_split,
    tensordot as tensordot,
    to_numpy as to_numpy,
    vsplit as vsplit,
    zeros_like as zeros_like,
)
from ._making import (
    BFloat16Tensor as BFloat16Tensor,
    BoolTensor as BoolTensor,
    ByteTensor as ByteTensor,
    CharTensor as CharTensor,
    DoubleTensor as DoubleTensor,
    FloatTensor as FloatTensor,
    Generator as Generator,
    HalfTensor as HalfTensor,
    IntTensor as IntTensor,
    LongTensor as LongTensor,
    ShortTensor as ShortTensor,
    arange as arange,
    bernoulli as bernoulli,
    empty as empty,
    eye as eye,
    full as full,
    linspace as linspace,
    manual_seed as manual_seed,
    multinomial as multinomial,
    normal as normal,
    ones as ones,
    rand as rand,
    randint as randint,
    randn as randn,
    randperm as randperm,
    zeros as zeros,
)
from ._saving import load as load, save as save
from ._torch_forms import (
    meshgrid as meshgrid,
    median as median,
    nanmedian as nanmedian,
    nonzero as nonzero,
    std as std,
    std_mean as std_mean,
    unique as unique,
    unique_consecutive as unique_consecutive,
    var as var,
    var_mean as var_mean,
    where as where,
)
from ._torch_names import (
    adjoint as adjoint,
    as_tensor as as_tensor,
    broadcast_shapes as broadcast_shapes,
    clamp_max as clamp_max,
    clamp_min as clamp_min,
    clone as clone,
    is_floating_point as is_floating_point,
    is_nonzero as is_nonzero,
    is_same_size as is_same_size,
    is_tensor as is_tensor,
    isneginf as isneginf,
    isposinf as isposinf,
    isreal as isreal,
    numel as numel,
    pinverse as pinverse,
    randint_like as randint_like,
    real as real,
    row_stack as row_stack,
    rsub as rsub,
    scalar_tensor as scalar_tensor,
    sgn as sgn,
    split_with_sizes as split_with_sizes,
    swapdims as swapdims,
    take_along_dim as take_along_dim,
)
from ._transforms import (
    GradcheckReport as GradcheckReport,
    autocast as autocast,
    backward as backward,
    custom_gradient as custom_gradient,
    detect_anomaly as detect_anomaly,
    enable_grad as enable_grad,
    grad as grad,
    gradcheck as gradcheck,
    inference_mode as inference_mode,
    jvp as jvp,
    keep_history as keep_history,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
    value_and_grad as value_and_grad,
    vjp as vjp,
    vmap as vmap,
)
from ._types import (
    ArrayLike as ArrayLike,
    DeviceLike as DeviceLike,
    DTypeLike as DTypeLike,
    Operand as Operand,
)
from ._weft import (
    AnomalyError as AnomalyError,
    DeviceError as DeviceError,
    DeviceMemoryError as DeviceMemoryError,
    DTypeError as DTypeError,
    Error as Error,
    FileError as FileError,
    HookHandle as HookHandle,
    InternalError as InternalError,
    Op as Op,
    Session as Session,
    ShapeError as ShapeError,
    Tensor as Tensor,
    UsageError as UsageError,
    Variable as Variable,
    __version__ as __version__,
    checkpoint as checkpoint,
    device as device,
    device_memory_used as device_memory_used,
    devices as devices,
    dtype as dtype,
    einsum as einsum,
    evaluate as evaluate,
    explain as explain,
    hessian as hessian,
    is_grad_enabled as is_grad_enabled,
    is_tracing as is_tracing,
    jacobian as jacobian,
    op as op,
    register_hook as register_hook,
    register_op as register_op,
    set_device_memory_limit as set_device_memory_limit,
    set_product_precision as set_product_precision,
    synchronize as synchronize,
    with_gradient_hook as with_gradient_hook,
)


def __getattr__(name: str) -> Any:
    """Ops that were registered later."""
    if not name.startswith("_") and name in op_names():
        return op(name)
    raise AttributeError(f"module 'weft' has no attribute {name!r}")


# The WebGPU library that comes with the wheel.
_library = os.path.join(os.path.dirname(__file__), "lib", "libwebgpu_dawn.so")
if os.path.exists(_library):
    os.environ.setdefault("WEFT_WEBGPU_LIBRARY", _library)

f32 = float32 = float = dtype("f32")
f64 = float64 = double = dtype("f64")
f16 = float16 = half = dtype("f16")
bf16 = bfloat16 = dtype("bf16")
i8 = int8 = dtype("i8")
i16 = int16 = short = dtype("i16")
i32 = int32 = int = dtype("i32")
i64 = int64 = long = dtype("i64")
u8 = uint8 = dtype("u8")
u16 = uint16 = dtype("u16")
u32 = uint32 = dtype("u32")
u64 = uint64 = dtype("u64")
bool_ = bool = dtype("bool")
newaxis = None
pi = 3.141592653589793
inf = math.inf
nan = math.nan
