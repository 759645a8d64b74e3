#include "weft/nn/init.hpp"

#include <algorithm>

#include "base/philox.hpp"
#include "base/threads.hpp"
#include "nn/draw_elements.hpp"

namespace weft::nn {
namespace {

// Elements 4i to 4i+3 come from block i.
void draw_range(const Init& init, philox::Key key, std::uint32_t stream_high, Extent begin, Extent end, float* out) {
  constexpr Extent kWords = 1 << 10;  // at a time, a multiple of 4
  std::uint32_t words[kWords];
  float last[4];
  for (Extent i = begin; i < end; i += kWords) {
    const Extent count = std::min(kWords, end - i), whole = count / 4 * 4;
    for (Extent w = 0; w < count; w += 4) {
      const auto counter = static_cast<std::uint64_t>((i + w) / 4);
      const philox::Block block =
          philox::block(key, {static_cast<std::uint32_t>(counter), static_cast<std::uint32_t>(counter >> 32),
                              stream_high, static_cast<std::uint32_t>(philox::Use::parameters)});
      std::copy(block.begin(), block.end(), words + w);
    }
    const auto make = [&](Extent first, Extent n, float* to) {
      const std::span<const std::uint32_t> chosen(words + first, static_cast<std::size_t>(n));
      if (init.kind == Init::Kind::uniform)
        uniform_elements(chosen, init.a, init.b, to);
      else
        normal_elements(chosen, init.a, init.b, to);
    };
    make(0, whole, out + i);
    if (whole == count) continue;
    make(whole, 4, last);
    std::copy_n(last, count - whole, out + i + whole);
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
