#include "io/mxfp4_experts.hpp"

#include <fmt/format.h>

#include "base/quote.hpp"
#include "base/threads.hpp"
#include "weft/error.hpp"

namespace weft::io {
namespace {

constexpr Extent kBytesOfBlock = 16, kElementsOfBlock = 32, kExpertsMax = 1024;

/// Some rows of an expert: from `begin`, every `step`-th.
struct ExpertRows {
  const std::byte *blocks, *scales;  // of the expert
  Extent groups, begin, step, count;
};

/// GGUF's blocks hold the exponent and then elements i and i + 16 in a byte; here a byte has neighbours.
void write_expert(const ExpertRows& rows, std::byte* to) {
  constexpr Extent kBlock = 1 + kBytesOfBlock;
  parallel_for(rows.count, [&](Extent row) {
    const Extent first = (rows.begin + row * rows.step) * rows.groups;
    for (Extent g = 0; g < rows.groups; ++g) {
      const std::byte* from = rows.blocks + (first + g) * kBytesOfBlock;
      std::byte* block = to + (row * rows.groups + g) * kBlock;
      block[0] = rows.scales[first + g];
      const auto element = [&](Extent i) { return from[i / 2] >> (i % 2 * 4) & std::byte{15}; };
      for (Extent i = 0; i < kBytesOfBlock; ++i) block[1 + i] = element(i) | element(i + kBytesOfBlock) << 4;
    }
  });
}

}  // namespace

void add_mxfp4_experts(const TensorSource& source, std::vector<SourceTensor>& tensors,
                       std::unordered_set<const SourceTensor*>& used) {
  constexpr std::string_view kBlocks = "_blocks", kJoined = ".gate_up_proj";
  for (const SourceTensor& blocks : source.tensors()) {
    if (!blocks.name.ends_with(kBlocks)) continue;
    const std::string name = blocks.name.substr(0, blocks.name.size() - kBlocks.size());
    const auto fail = [&](const std::string& fact) {
      throw FileError(
          fmt::format("{}: {}: {}; take another copy of the model", source.path().string(), quote(blocks.name), fact));
    };
    const SourceTensor* scales = source.find(name + "_scales");
    if (!scales) fail(fmt::format("there is no {}", quote(name + "_scales")));
    const Shape& shape = blocks.shape;
    if (blocks.type_name != "U8" || scales->type_name != "U8") fail("blocks and scales of MXFP4 are U8");
    if (shape.rank() != 4 || shape[3] != kBytesOfBlock || shape[0] < 1 || shape[0] > kExpertsMax || shape[1] < 1 ||
        shape[2] < 1)
      fail(fmt::format("its shape is {}, not [experts, rows, groups, {}]", shape.to_string(), kBytesOfBlock));
    if (scales->shape != Shape{shape[0], shape[1], shape[2]})
      fail(fmt::format("{} is {}, not [{}, {}, {}]", quote(scales->name), scales->shape.to_string(), shape[0], shape[1],
                       shape[2]));
    const bool is_joined = name.ends_with(kJoined);
    if (is_joined && shape[1] % 2 != 0) fail(fmt::format("its {} rows are not pairs of a gate and an up", shape[1]));
    used.insert({&blocks, scales});
    const auto dot = name.rfind('.');
    const std::string prefix = name.substr(0, dot), last = name.substr(dot + 1);
    const Extent step = is_joined ? 2 : 1, of_expert = shape[1] * shape[2];
    for (Extent e = 0; e < shape[0]; ++e)
      for (Extent begin = 0; begin < step; ++begin) {
        const ExpertRows rows{blocks.data.data() + e * of_expert * kBytesOfBlock,
                              scales->data.data() + e * of_expert,
                              shape[2],
                              begin,
                              step,
                              shape[1] / step};
        const std::string part = !is_joined ? last : begin == 0 ? "gate_proj" : "up_proj";
        tensors.push_back({fmt::format("{}.{}.{}.weight", prefix, e, part),
                           {rows.count, shape[2] * kElementsOfBlock},
                           std::string(file_name_of(BlockType::mxfp4)),
                           BlockType::mxfp4,
                           {},
                           [rows](std::span<std::byte> to) { write_expert(rows, to.data()); }});
      }
  }
}

}  // namespace weft::io
