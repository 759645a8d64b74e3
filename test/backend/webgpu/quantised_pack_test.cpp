// The layout of weights in blocks: what was packed comes back.
#include "backend/webgpu/quantised_pack.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::webgpu {
namespace {

TEST(QuantisedPack, BlocksComeBackBitForBit) {
  for (const BlockFormat& format : block_formats()) {
    if (!has_quantised_products(format.type)) continue;
    const Extent n = 13, k = 3 * static_cast<Extent>(std::max<std::size_t>(format.block_elements, 11));
    std::vector<std::byte> blocks(bytes_for(format.type, Shape{n, k}, "test"));
    std::uint64_t state = 3;
    for (std::byte& byte : blocks) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      byte = static_cast<std::byte>(state >> 56);
    }
    if (format.type == DType::mxfp4)  // -0 is the byte of 0 here
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i % format.block_bytes == 0) continue;
        const auto code = [](std::byte nibble) { return nibble == std::byte{8} ? std::byte{0} : nibble; };
        blocks[i] = code(blocks[i] & std::byte{15}) | code(blocks[i] >> 4) << 4;
      }
    std::vector<std::byte> back(blocks.size());
    unpack_quantised(format.type, pack_quantised(format.type, blocks, n, k), n, k, back);
    EXPECT_EQ(back, blocks) << format.name;
    EXPECT_THROW(unpack_quantised(format.type, {}, n, k, std::span(back).first(back.size() - 1)), ShapeError);
  }
}

}  // namespace
}  // namespace weft::webgpu
