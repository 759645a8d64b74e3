#include "backend/webgpu/tested_facts.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "backend/webgpu/command_sequence.hpp"
#include "backend/webgpu/wgsl/shader.hpp"
#include "base/half.hpp"
#include "base/log.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

constexpr int kVersion = 1;  // of the format and of the tests
constexpr std::string_view kKey = "weft tested facts";

constexpr int kThreads = 256;
constexpr std::uint32_t kHalves = 1 << 16;

/// What the shader leaves in a buffer of so many words.
std::vector<std::uint32_t> results(const std::shared_ptr<Device>& device, const ShaderPieces& pieces,
                                   std::uint32_t words, std::uint32_t workgroups) {
  Recording recording;
  recording.slots.push_back({Buffer::create(device, words * 4, "testing the device")});
  recording.shaders.push_back({"test", pieces.text(), {false}});
  recording.commands.emplace_back(Dispatch{"test", 0, {{0, 0, words * 4}}, fold_workgroups(workgroups)});
  const std::shared_ptr<Buffer> buffer = recording.slots[0].buffer;
  CommandSequence(device, std::move(recording)).run({});
  std::vector<std::uint32_t> host(words);
  buffer->download(0, host.data(), host.size() * 4);
  return host;
}

bool has_exact_halves(const std::shared_ptr<Device>& device) {
  const ShaderPieces pieces{
      .threads = kThreads,
      .storage = {{"u32", true}},
      .body = fmt::format("  let code = group * {}u + thread;\n"
                          "  let both = bitcast<vec2<u32>>(unpack2x16float(code | (code << 16u)));\n"
                          "  $data0[code] = both.x;\n"
                          "  $data0[code + {}u] = both.y;\n",
                          kThreads, kHalves)};
  const std::vector<std::uint32_t> words = results(device, pieces, 2 * kHalves, kHalves / kThreads);
  for (std::uint32_t i = 0; i < words.size(); ++i) {
    const float wanted = f32_from_f16(static_cast<std::uint16_t>(i % kHalves));
    const bool same = std::isnan(wanted) ? std::isnan(std::bit_cast<float>(words[i]))
                                         : words[i] == std::bit_cast<std::uint32_t>(wanted);
    if (!same) return false;
  }
  return true;
}

}  // namespace

std::string facts_text(const TestedFacts& facts) {
  return nlohmann::ordered_json{{"version", kVersion}, {"exact_halves", facts.exact_halves}}.dump() + "\n";
}

std::optional<TestedFacts> parse_facts(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("version") || json["version"] != kVersion) return {};
  TestedFacts facts;
  for (const auto& [name, fact] : {std::pair{"exact_halves", &facts.exact_halves}}) {
    const auto found = json.find(name);
    if (found == json.end() || !found->is_boolean()) return {};
    *fact = found->get<bool>();
  }
  return facts;
}

TestedFacts test_facts(const std::shared_ptr<Device>& device) {
  TestedFacts facts;
  facts.exact_halves = has_exact_halves(device);
  return facts;
}

const TestedFacts& FactsKeeper::facts() {
  const std::lock_guard lock(device_->mutex());
  if (facts_) return *facts_;
  const std::vector<std::byte> kept = device_->blob_cache().load(kKey);
  if (!kept.empty()) facts_ = parse_facts({reinterpret_cast<const char*>(kept.data()), kept.size()});
  if (facts_) return *facts_;
  facts_ = test_facts(device_);
  device_->blob_cache().store(kKey, facts_text(*facts_));
  log(LogLevel::info, "webgpu", fmt::format("{}: tested: {}", device_->name(), facts_text(*facts_)));
  return *facts_;
}

}  // namespace weft::webgpu
