// Single elements on the host: packed types at any place, copies between places, casts, and the tables that must agree.
#include "tensor/element.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cctype>
#include <cmath>
#include <random>

#include "tensor/block_format.hpp"

namespace weft {
namespace {

/// Code `i` of packed elements, bit by bit.
unsigned code_at(const std::vector<std::uint8_t>& bytes, int bits, std::size_t i) {
  unsigned code = 0;
  for (int b = 0; b < bits; ++b) {
    const std::size_t at = i * static_cast<std::size_t>(bits) + static_cast<std::size_t>(b);
    code |= (bytes[at / 8] >> at % 8 & 1u) << b;
  }
  return code;
}

TEST(Element, CodesArePackedAndUnpackedAtAnyPlaceAndStride) {
  std::mt19937 random(2);
  for (const int bits : {1, 2, 4})
    for (int round = 0; round < 200; ++round) {
      const auto first = static_cast<std::int64_t>(random() % 40), count = static_cast<std::int64_t>(random() % 50);
      const std::int64_t stride = std::array<std::int64_t, 5>{1, 1, 2, 3, -1}[random() % 5];
      const std::int64_t from = stride < 0 ? first + count : first;
      std::vector<std::uint8_t> bytes(200), codes(static_cast<std::size_t>(count)), read(codes.size());
      for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random());
      for (auto& code : codes) code = static_cast<std::uint8_t>(random() % (1u << bits));
      const std::vector<std::uint8_t> before = bytes;
      pack_codes(bits, codes.data(), 1, bytes.data(), from, stride, count);
      unpack_codes(bits, bytes.data(), from, stride, read.data(), count);
      EXPECT_EQ(read, codes);
      std::vector<int> written(8 * bytes.size() / static_cast<std::size_t>(bits), -1);
      for (std::int64_t i = 0; i < count; ++i)
        written[static_cast<std::size_t>(from + i * stride)] = codes[static_cast<std::size_t>(i)];
      for (std::size_t i = 0; i < written.size(); ++i)
        ASSERT_EQ(code_at(bytes, bits, i),
                  written[i] >= 0 ? static_cast<unsigned>(written[i]) : code_at(before, bits, i))
            << bits << " bits, element " << i << " of a write from " << from << " by " << stride;
    }
}

TEST(Element, CopiesKeepTheBitsAround) {
  std::mt19937 random(3);
  for (const DType type : {DType::binary, DType::int2, DType::fp4_e2m1, DType::fp8_e5m2, DType::f16, DType::f64})
    for (int round = 0; round < 60; ++round) {
      const std::size_t from = random() % 30, to = random() % 30, count = random() % 700, all = 800;
      std::vector<std::uint8_t> a(bytes_of(type, all)), b(a.size());
      for (auto& byte : a) byte = static_cast<std::uint8_t>(random());
      for (auto& byte : b) byte = static_cast<std::uint8_t>(random());
      const std::vector<std::uint8_t> before = b;
      copy_elements(type, a.data(), from, b.data(), to, count);
      const auto bits = static_cast<std::size_t>(element(type).bits);
      for (std::size_t bit = 0; bit < all * bits; ++bit) {
        const bool inside = bit >= to * bits && bit < (to + count) * bits;
        const std::size_t source = inside ? bit - to * bits + from * bits : bit;
        ASSERT_EQ(b[bit / 8] >> bit % 8 & 1, (inside ? a : before)[source / 8] >> source % 8 & 1) << name_of(type);
      }
    }
}

TEST(Element, CastsOfPackedTypesOnTheHost) {
  const float values[] = {0.9f, -2.6f, 7.5f, 100, -0.5f};
  std::byte packed[3] = {std::byte{0xff}, std::byte{0xff}, std::byte{0xff}};
  cast_elements(DType::f32, reinterpret_cast<const std::byte*>(values), DType::int4, packed, 5);
  EXPECT_EQ(packed[2], std::byte{0});  // the unused half too
  double back[5];
  cast_elements(DType::int4, packed, DType::f64, reinterpret_cast<std::byte*>(back), 5);
  EXPECT_EQ(std::vector<double>(back, back + 5), (std::vector<double>{1, -3, 7, 7, 0}));
  EXPECT_TRUE(holds_all(DType::f16, DType::fp8_e5m2) && holds_all(DType::i8, DType::uint4));
  EXPECT_TRUE(holds_all(DType::f32, DType::q4_0) && !holds_all(DType::f16, DType::q4_0) &&
              !holds_all(DType::i32, DType::q8_0));
  EXPECT_FALSE(holds_all(DType::u8, DType::int4) || holds_all(DType::i32, DType::fp4_e2m1) ||
               holds_all(DType::int4, DType::int2));
}

// What model files need beside the table of types follows it.
TEST(Element, TypesOfModelFilesAreThoseOfTensors) {
  int plain = 0, blocks = 0;
  for (const Element& row : kElements) {
    if (row.gguf < 0) {
      EXPECT_THROW(block_format(row.type), UsageError) << row.name;
      continue;
    }
    const BlockFormat& format = block_format(row.type);
    EXPECT_EQ(find_block_format(static_cast<std::uint32_t>(row.gguf)), &format) << row.name;
    EXPECT_EQ(find_block_format(row.name), &format) << row.name;
    EXPECT_EQ(format.is_plain(), !is_block(row.type)) << row.name;
    ++(is_block(row.type) ? blocks : plain);
    EXPECT_EQ(bytes_of(row.type, 3 * format.block_elements), 3 * format.block_bytes) << row.name;
  }
  EXPECT_EQ(plain, 8);
  EXPECT_EQ(blocks, 13);
  EXPECT_EQ(file_name_of(DType::iq4_nl), "IQ4_NL");
  EXPECT_EQ(bytes_of(DType::q4_k, 512), 288u);
}

TEST(Element, BlocksTakeNoPartInArithmetic) {
  EXPECT_TRUE(is_storage(DType::q4_k) && is_block(DType::q4_k));
  EXPECT_FALSE(is_packed(DType::q4_k) || is_narrow(DType::q4_k) || is_block(DType::int4) || is_float(DType::q8_0));
  EXPECT_EQ(promote(DType::q4_k, DType::q4_k), DType::q4_k);
  EXPECT_THROW(promote(DType::q4_k, DType::f32), DTypeError);
}

}  // namespace
}  // namespace weft
