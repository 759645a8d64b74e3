#include "weft/nn/init.hpp"

#include <algorithm>
#include <numbers>

#include "base/philox.hpp"
#include "base/threads.hpp"

namespace weft::nn {
namespace {

// Elements 4i to 4i+3 come from block i.
void draw_range(const Init& init, philox::Key key, std::uint32_t stream_high, Extent begin, Extent end, float* out) {
  for (Extent i = begin; i < end; i += 4) {
    const auto counter = static_cast<std::uint64_t>(i / 4);
    const philox::Block words =
        philox::block(key, {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32), stream_high,
                            static_cast<std::uint32_t>(philox::Use::parameters)});
    float values[4];
    if (init.kind == Init::Kind::uniform) {
      for (int j = 0; j < 4; ++j)
        values[j] =
            static_cast<float>(init.a + (init.b - init.a) * static_cast<double>(philox::to_unit_float(words[j])));
    } else {
      for (int j = 0; j < 4; j += 2) {
        const double u = (static_cast<double>(words[j]) + 0.5) * 0x1p-32;  // never 0
        const double angle = 2 * std::numbers::pi * static_cast<double>(words[j + 1]) * 0x1p-32;
        const double radius = init.b * std::sqrt(-2 * std::log(u));
        values[j] = static_cast<float>(init.a + radius * std::cos(angle));
        values[j + 1] = static_cast<float>(init.a + radius * std::sin(angle));
      }
    }
    std::copy_n(values, std::min<Extent>(4, end - i), out + i);
  }
}

void require_positive(const char* what, Extent fan) {
  if (fan < 1) throw ShapeError(std::string(what) + ": the number of inputs must be at least 1");
}

}  // namespace

Init Init::kaiming_uniform(Extent fan_in, double slope) {
  require_positive("kaiming_uniform", fan_in);
  const double bound = std::sqrt(2 / (1 + slope * slope)) * std::sqrt(3 / static_cast<double>(fan_in));
  return uniform(-bound, bound);
}

Init Init::kaiming_normal(Extent fan_in) {
  require_positive("kaiming_normal", fan_in);
  return normal(std::sqrt(2 / static_cast<double>(fan_in)));
}

Init Init::xavier_uniform(Extent fan_in, Extent fan_out) {
  require_positive("xavier_uniform", fan_in + fan_out);
  const double bound = std::sqrt(6 / static_cast<double>(fan_in + fan_out));
  return uniform(-bound, bound);
}

std::vector<float> draw(const Init& init, Extent count, std::uint64_t seed, std::string_view name) {
  std::vector<float> values(static_cast<std::size_t>(count));
  draw_into(values, init, seed, name);
  return values;
}

void draw_into(std::span<float> out, const Init& init, std::uint64_t seed, std::string_view name) {
  if (init.kind == Init::Kind::constant) {
    std::fill(out.begin(), out.end(), static_cast<float>(init.a));
    return;
  }
  const auto count = static_cast<Extent>(out.size());
  // The key and one counter word hold 64 bits of seed and 64 of name: the seed's upper half is mixed into the name.
  const std::uint64_t stream = philox::stream_of(name) ^ (seed >> 32) * 0x9E3779B97F4A7C15ull;
  const philox::Key key = {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(stream)};
  constexpr Extent chunk = 1 << 15;  // a multiple of 4
  parallel_for((count + chunk - 1) / chunk, [&](std::int64_t i) {
    draw_range(init, key, static_cast<std::uint32_t>(stream >> 32), i * chunk, std::min(count, (i + 1) * chunk),
               out.data());
  });
}

}  // namespace weft::nn
