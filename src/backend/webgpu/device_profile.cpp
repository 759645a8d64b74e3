#include "backend/webgpu/device_profile.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "backend/webgpu/blob_cache.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr int kVersion = 1;  // of the format and of the way to measure
constexpr std::string_view kKey = "weft device profile";
constexpr std::uint32_t kComputeUnitsMax = 65536;

struct Figure {
  const char* name;
  double DeviceProfile::*value;
  double least, most;  // of any device
};
constexpr Figure kFigures[] = {
    {"unit_flops", &DeviceProfile::unit_flops, 1e6, 1e15},
    {"bytes_per_second", &DeviceProfile::bytes_per_second, 1e6, 1e15},
    {"dispatch_microseconds", &DeviceProfile::dispatch_microseconds, 1e-2, 1e5},
    {"fma_microseconds", &DeviceProfile::fma_microseconds, 1e-5, 1e3},
    {"load_microseconds", &DeviceProfile::load_microseconds, 1e-4, 1e4},
};

}  // namespace

DeviceProfile profile_from_table(const AdapterInfo& adapter) {
  DeviceProfile profile;
  if (adapter.type == AdapterType::discrete) return profile;
  profile.compute_units = 16;
  profile.source = fmt::format("table: {}", name_of(adapter.type));
  return profile;
}

std::string profile_text(const DeviceProfile& profile) {
  nlohmann::ordered_json json;
  json["version"] = kVersion;
  json["source"] = profile.source;
  json["compute_units"] = profile.compute_units;
  for (const Figure& figure : kFigures) json[figure.name] = profile.*figure.value;
  return json.dump(2) + "\n";
}

std::optional<DeviceProfile> parse_profile(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion) return {};
  DeviceProfile profile;
  const auto units = json.find("compute_units"), source = json.find("source");
  if (units == json.end() || !units->is_number_unsigned() || *units < 1u || *units > kComputeUnitsMax) return {};
  profile.compute_units = units->get<std::uint32_t>();
  for (const Figure& figure : kFigures) {
    const auto value = json.find(figure.name);
    if (value == json.end() || !value->is_number()) return {};
    profile.*figure.value = value->get<double>();
    if (!(profile.*figure.value >= figure.least && profile.*figure.value <= figure.most)) return {};
  }
  profile.source = "file";
  if (source != json.end() && source->is_string() && source->get<std::string>().size() <= 100)
    profile.source = source->get<std::string>();
  return profile;
}

std::string describe(const DeviceProfile& profile) {
  return fmt::format(
      "{} compute units of {:.3g} GFLOP/s, {:.3g} GB/s, dispatch {:.2g} us, fma {:.2g} ns, load {:.2g} ns ({})",
      profile.compute_units, profile.unit_flops / 1e9, profile.bytes_per_second / 1e9, profile.dispatch_microseconds,
      profile.fma_microseconds * 1e3, profile.load_microseconds * 1e3, profile.source);
}

DeviceProfile rounded(DeviceProfile profile) {
  for (const Figure& figure : kFigures) {
    double& value = profile.*figure.value;
    const double unit = std::pow(10.0, std::floor(std::log10(value)) - 1);
    value = std::round(value / unit) * unit;
  }
  return profile;
}

std::optional<DeviceProfile> load_profile(BlobCache& cache) {
  const std::vector<std::byte> bytes = cache.load(kKey);
  if (bytes.empty()) return {};
  return parse_profile({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

void store_profile(BlobCache& cache, const DeviceProfile& profile) { cache.store(kKey, profile_text(profile)); }

std::optional<DeviceProfile> profile_from_environment(const AdapterInfo& adapter) {
  const char* text = std::getenv("WEFT_WEBGPU_PROFILE");
  if (!text || !*text) return {};
  if (std::string_view(text) == "table") return profile_from_table(adapter);
  std::ifstream file(text, std::ios::binary);
  if (!file) throw FileError(fmt::format("WEFT_WEBGPU_PROFILE: {} cannot be read", text));
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  const std::optional<DeviceProfile> profile = parse_profile(content);
  if (!profile)
    throw UsageError(fmt::format("WEFT_WEBGPU_PROFILE: {} has no device profile of version {}; a profile looks so:\n{}",
                                 text, kVersion, profile_text(profile_from_table(adapter))));
  return profile;
}

}  // namespace weft::webgpu
