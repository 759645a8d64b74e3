// Hugging Face folders whose matrices are packed integers, those of GPTQ, AWQ and MLX; experts in MXFP4; and matrices in FP8.
#pragma once

#include "io/tensor_source.hpp"

namespace weft::io {

/// `source` itself unless it is a folder whose config.json tells of quantised weights: "quantization_config" with the method
/// "gptq" (checkpoint_format "gptq" or "gptq_v2") or "awq" (version "gemm"), or MLX's "quantization" (mode "affine" or
/// "mxfp4", also for single layers). With the method "mxfp4" experts become matrices (mxfp4_experts.hpp), and with a method that
/// stores FP8 matrices of 16 bits (fp8_folder.hpp). Else the tensors of each quantised layer become one, NAME.weight, in the type
/// that `IntegerLayer::type` chooses; its blocks are made when they are asked for. Layers that are not quantised stay. The notes
/// of the result tell which layers have no exact type of blocks.
/// Errors: FileError for other methods and formats, with those that are known; for packed integers without a description; as
/// `IntegerLayer`.
TensorSource with_quantised_layers(TensorSource source);

}  // namespace weft::io
