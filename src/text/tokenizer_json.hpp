// The parts of tokenizer.json, one reader each. Each throws FileError as JsonNode.
#pragma once

#include <memory>
#include <optional>

#include "text/decoder.hpp"
#include "text/json_node.hpp"
#include "text/model.hpp"
#include "text/normalizer.hpp"
#include "text/pre_tokenizer.hpp"

namespace weft::text {

/// Null for a sequence of none.
NormalizerPtr read_normalizer(const JsonNode& node);

/// Whether the last thing that the pre-tokenizer does is to write bytes in the byte-level alphabet, and nothing else does.
bool ends_in_byte_level(const JsonNode& node);
/// `keep_bytes`: leave out that last thing.
PreTokenizerPtr read_pre_tokenizer(const JsonNode& node, bool keep_bytes);

std::vector<DecoderStep> read_decoder(const JsonNode& node);

struct ReadModel {
  ModelPtr model;
  bool bytes = false;       // the model's pieces are bytes
  Vocabulary other_pieces;  // then: those with characters that are not in the byte-level alphabet
};
/// `byte_level`: words will be in the byte-level alphabet. Where the model allows it, it then works on bytes, and words must
/// come as bytes.
/// `special`: pieces that words are not to be made of.
ReadModel read_model(const JsonNode& node, bool byte_level, const std::vector<std::string_view>& special);

}  // namespace weft::text
