// Reductions over axes so long that threads take parts of them: how parts join must not show.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "weft/ops.hpp"

namespace weft {
namespace {

constexpr Extent kLong = 3'000'000;

template <class T>
Tensor long_tensor(const std::vector<T>& values) {
  return tensor<T>(std::span<const T>(values), {static_cast<Extent>(values.size())});
}

TEST(LongReductions, NanOfAnyPartStays) {
  for (const std::size_t place : {std::size_t{3}, std::size_t{kLong / 2}, std::size_t{kLong - 2}}) {
    SCOPED_TRACE(place);
    std::vector<float> values(kLong);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
    values[place] = std::numeric_limits<float>::quiet_NaN();
    const Tensor x = long_tensor(values);
    EXPECT_TRUE(std::isnan(amax(x).item<float>()));
    EXPECT_TRUE(std::isnan(amin(x).item<float>()));
    EXPECT_TRUE(std::isnan(sum(x).item<float>()));
    EXPECT_EQ(argmax(x, 0).item<std::int32_t>(), static_cast<std::int32_t>(place));
    EXPECT_EQ(argmin(x, 0).item<std::int32_t>(), static_cast<std::int32_t>(place));
  }
}

TEST(LongReductions, TheFirstNanWins) {
  std::vector<float> values(kLong, 1);
  values[5] = values[kLong / 2] = values[kLong - 2] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = long_tensor(values);
  EXPECT_EQ(argmax(x, 0).item<std::int32_t>(), 5);
  EXPECT_EQ(argmin(x, 0).item<std::int32_t>(), 5);
}

TEST(LongReductions, ExtremesComeFromTheirPlaces) {
  std::vector<float> values(kLong);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 1000);
  values[1'999'999] = values[2'500'000] = 5000;
  values[700'001] = values[2'900'000] = -5000;
  const Tensor x = long_tensor(values);
  EXPECT_EQ(amax(x).item<float>(), 5000);
  EXPECT_EQ(amin(x).item<float>(), -5000);
  EXPECT_EQ(argmax(x, 0).item<std::int32_t>(), 1'999'999);  // the first of equal ones
  EXPECT_EQ(argmin(x, 0).item<std::int32_t>(), 700'001);
}

TEST(LongReductions, IntegersWrapAround) {
  std::vector<std::int32_t> values(kLong);
  std::uint32_t product = 1, total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int32_t>(2 * (i % 50021) + 1);
    product *= static_cast<std::uint32_t>(values[i]);
    total += static_cast<std::uint32_t>(values[i]);
  }
  const Tensor x = long_tensor(values);
  EXPECT_EQ(prod(x).item<std::int32_t>(), static_cast<std::int32_t>(product));
  EXPECT_EQ(sum(x).item<std::int32_t>(), static_cast<std::int32_t>(total));
  EXPECT_EQ(prod(cast(x, DType::u32)).item<std::uint32_t>(), product);
}

}  // namespace
}  // namespace weft
