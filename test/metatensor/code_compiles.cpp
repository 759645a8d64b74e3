// The C++ that declarations() writes: it compiles, its assertions about places hold, and it reads what encode() writes.
#include <gtest/gtest.h>

#include <cstring>

#include "metatensor/code_layout.hpp"
#include "metatensor_code.hpp"

namespace weft::typedefs {
namespace {

TEST(TypedefCode, StructsOfCppReadWhatLayoutsWrite) {
  const Encoded encoded = test_code::layout().encode(test_code::value());
  ASSERT_EQ(encoded.data.size(), sizeof(Sample));
  Sample sample;
  std::memcpy(&sample, encoded.data.data(), sizeof sample);
  EXPECT_EQ(sample.id, 7);
  EXPECT_EQ(double{sample.weight}, 2.5);
  EXPECT_EQ(int{sample.half}, 0x3C00);
  EXPECT_TRUE(sample.class_ == Sample_class_::new_);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(sample.name.data), sample.name.length), "abc");
  EXPECT_EQ(float{sample.pixels[5]}, 6);
  EXPECT_EQ(sample.packed[0], 0x21);
  EXPECT_EQ(std::uint32_t{sample.points.count}, 1u);
  EXPECT_EQ(int{sample.points.items[0].y}, -2);
  EXPECT_EQ(float{sample.near}, 0.5f);
  EXPECT_EQ(sample.shape.discriminator, 2);
  EXPECT_EQ(int{sample.shape.variant.n2.a}, 9);
}

}  // namespace
}  // namespace weft::typedefs
