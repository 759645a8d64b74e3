// What the parts of a text encoder are called in files.
#pragma once

#include <string>
#include <string_view>

#include "encoder/config.hpp"

namespace weft::encoder {

/// Names without ".weight" and ".bias". An empty name: the family has no such part, or it is within another.
struct EncoderNames {
  std::string prefix;  ///< before all of them
  std::string_view words, positions, types, embedding_norm, embedding_product, last_norm;
  std::string_view distances, distance_norm;  ///< of buckets of distances, or of DeBERTa's embeddings
  std::string_view layer;                     ///< with {} for the number
  std::string_view qkv, q, k, v, o, norm1, gate_up, gate, up, down, norm2;
  std::string_view norm1_after = {}, norm2_after = {}, q_norm = {}, k_norm = {};
  std::string_view position_key = {}, position_query = {};

  std::string operator()(std::string_view part) const { return prefix + std::string(part); }
};

/// Of the family, as the tensors of `source` are named. FileError if no prefix fits.
EncoderNames names_of(const EncoderConfig& config, const io::TensorSource& source);

}  // namespace weft::encoder
