#include "io/model_type.hpp"

#include "base/json.hpp"

namespace weft::io {

std::string model_type_of(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "config.json";
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(file, ignored)) return {};
  const Json json = read_json_file(file, {.max_bytes = std::uint64_t{8} << 20});
  const auto type = json.is_object() ? json.find("model_type") : json.end();
  return type != json.end() && type->is_string() ? type->get<std::string>() : "";
}

}  // namespace weft::io
