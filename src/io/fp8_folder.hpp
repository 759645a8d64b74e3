// Hugging Face folders whose matrices are FP8 with scales.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "base/json.hpp"
#include "io/tensor_source.hpp"

namespace weft::io {

/// Whether the object of config.json, its "quantization_config", names a method that stores FP8: "fp8", "fbgemm_fp8",
/// "compressed-tensors" or "modelopt".
bool is_method_of_fp8(const Json& description);

/// A matrix for each tensor NAME of F8_E4M3, in the type that `Fp8Layer::type` chooses, whose values are made when they are asked
/// for. Its scales are NAME_scale_inv or NAME_scale, which both multiply. What the matrices are made of joins `used`, and so do
/// scales of activations and of caches, which Weft does not round. Tensors of other types stay, whatever modules the description
/// leaves out. `source_text` opens messages about the description.
/// Errors: FileError for descriptions of other types than FP8 in e4m3, for matrices without scales, and as `Fp8Layer`.
void add_fp8_layers(const Json& description, const std::string& source_text, const TensorSource& source,
                    std::vector<SourceTensor>& tensors, std::unordered_set<const SourceTensor*>& used,
                    std::vector<std::string>& notes);

}  // namespace weft::io
