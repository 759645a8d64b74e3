// Properties of a device that Weft tests, because WGSL does not guarantee them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace weft::webgpu {

class Device;

struct TestedFacts {
  bool exact_halves = false;  // unpack2x16float gives every f16 its value: subnormal numbers, infinities and NaN too
  bool rounded_halves =
      false;  // pack2x16float rounds every f32 to the nearest f16, ties to even: to subnormal numbers and infinity too
  bool matrices = false;  // subgroup matrices of f16 read packed words either way round and add up in f32
  bool ordered_subgroups =
      false;  // threads of a subgroup see what others wrote to workgroup memory before, without barriers
  bool integer_matrices = false;  // subgroup matrices of i8 read packed words and add up in i32
  bool integer_dots = false;      // dot4I8Packed is there, and exact
  bool meetings = false;  // workgroups of a dispatch can wait for one another, and then see what the others wrote

  bool operator==(const TestedFacts&) const = default;
};

/// As JSON, and back. Nothing for text that is damaged or of another version.
std::string facts_text(const TestedFacts& facts);
std::optional<TestedFacts> parse_facts(std::string_view text);

/// Runs the tests: some milliseconds, plus the compilation of two short shaders.
TestedFacts test_facts(const std::shared_ptr<Device>& device);

/// The facts of one open device.
class FactsKeeper {
 public:
  explicit FactsKeeper(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  /// The facts stored on disk, or tested now and stored. Thread safe.
  const TestedFacts& facts();

 private:
  std::shared_ptr<Device> device_;
  std::optional<TestedFacts> facts_;
};

}  // namespace weft::webgpu
