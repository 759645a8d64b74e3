// Metatensor files as models in containers, for programs that read any container, and models written as such files.
#pragma once

#include <filesystem>

#include "io/convert_model.hpp"
#include "io/tensor_source.hpp"

namespace weft::metatensor {

/// The tensors of a model in any container. Of a metatensor file these are its flat tensors in the types of its schema. FileError
/// as TensorSource::open.
io::TensorSource open_source(const std::filesystem::path& path);

/// Writes the tensors of a model in their own types, blocks and all; with `options.type`, those of floating point in that type.
/// Metadata of GGUF becomes text, as in safetensors files. Names with dots become structs. UsageError if one tensor's name
/// is a struct of others, and as io::convert_model; FileError for types that Weft does not have.
void write_model(const io::TensorSource& model, const std::filesystem::path& out, const io::ConvertOptions& options);

}  // namespace weft::metatensor
