// Configurations of text encoders from the metadata of GGUF files.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "encoder/config.hpp"
#include "weft/error.hpp"

namespace weft::encoder {

bool is_encoder_architecture(std::string_view architecture) {
  return architecture == "bert" || architecture == "nomic-bert";
}

EncoderConfig read_config(const io::GgufMetadata& metadata, const std::string& source) {
  throw FileError(
      fmt::format("{}: general.architecture is {}; of GGUF files Weft reads the text encoders bert and nomic-bert",
                  source, quote(metadata.get_or<std::string>("general.architecture", ""), 60)));
}

}  // namespace weft::encoder
