// Sizes that overflow throw, at the limits and around them.
#include "base/checked.hpp"
#include "base/message_of.hpp"

#include <gtest/gtest.h>

#include "base/temporary_folder.hpp"

namespace weft {
namespace {

using test::message_of;
constexpr std::uint64_t kMax = UINT64_MAX;
constexpr std::int64_t kHuge = std::int64_t{1} << 62;

TEST(Checked, ResultsThatFitAreExact) {
  EXPECT_EQ(checked_add(kMax - 1, std::uint64_t{1}, "x"), kMax);
  EXPECT_EQ(checked_multiply(std::uint64_t{1} << 32, std::uint64_t{1} << 31, "x"), std::uint64_t{1} << 63);
  EXPECT_EQ(checked_cast<std::int8_t>(-128, "x"), -128);
  EXPECT_EQ(checked_cast<std::uint8_t>(255, "x"), 255);
  EXPECT_EQ(checked_align_up(std::uint64_t{17}, std::uint64_t{8}, "x"), 24u);
  EXPECT_EQ(checked_align_up(kMax - 7, std::uint64_t{8}, "x"), kMax - 7);
}

TEST(Checked, OverflowNamesContextAndOperands) {
  EXPECT_EQ(message_of<FileError>([] { checked_add(kMax, std::uint64_t{1}, "header of a.bin"); }),
            "header of a.bin: 18446744073709551615 + 1 overflows 64 bits");
  EXPECT_EQ(message_of<ShapeError>([] { checked_multiply<ShapeError>(70000, 70000, "rows"); }),
            "rows: 70000 x 70000 overflows 32 bits");
  EXPECT_EQ(message_of<FileError>([] { checked_cast<std::uint8_t>(-1, "count"); }), "count: -1 is not in [0, 255]");
  EXPECT_EQ(message_of<FileError>([] { checked_align_up(kMax - 6, std::uint64_t{8}, "pad"); }),
            "pad: 18446744073709551609 + 7 overflows 64 bits");
  static_assert(!try_multiply(kHuge, std::int64_t{2}) && try_add(kHuge, kHuge - 1) && !try_add(kHuge, kHuge));
}

TEST(Checked, ElementsOfAShape) {
  struct Case {
    Shape shape;
    std::uint64_t numel;
  };
  for (const Case& c :
       {Case{{}, 1}, {{3}, 3}, {{2, 3, 4}, 24}, {{0}, 0}, {{5, 0, 7}, 0}, {{kHuge}, std::uint64_t{1} << 62}})
    EXPECT_EQ(checked_numel(c.shape, "x"), c.numel);
}

TEST(Checked, ElementsOverflowWhereverAZeroStands) {
  for (const Shape& shape : {Shape{kHuge, 2}, Shape{0, kHuge, kHuge}, Shape{kHuge, kHuge, 0}, Shape{kHuge, 0, kHuge}})
    EXPECT_NE(message_of<FileError>([&] { checked_numel(shape, "weight"); }).find("overflows 64 bits"),
              std::string::npos);
  EXPECT_EQ(message_of<ShapeError>([] {
              checked_numel<ShapeError>({2, -3}, "x");
            }),
            "x: extent -3 of shape [2, -3] is negative");
}

}  // namespace
}  // namespace weft
