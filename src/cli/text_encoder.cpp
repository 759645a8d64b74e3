#include "cli/text_encoder.hpp"

#include <fmt/format.h>

#include "weft/error.hpp"

namespace weft::cli {

void add_encoder_precision(CLI::App& app, std::string& precision) {
  app.add_option("--precision", precision,
                 "of a text encoder's products: f32, f16 or bf16, which tensor cores multiply")
      ->check(CLI::IsMember({"f32", "f16", "bf16"}))
      ->capture_default_str();
}

encoder::Model load_text_encoder(const std::filesystem::path& path, const Device& device,
                                 const std::string& precision) {
  const std::optional<DType> type = dtype_from_name(precision);
  if (!type) throw UsageError(fmt::format("--precision: {} is not known; choose f32, f16 or bf16", precision));
  return encoder::load(path, {.device = device, .precision = *type});
}

}  // namespace weft::cli
