// Frequencies of rotary positions.
#include <algorithm>
#include <cmath>

#include "llm/config.hpp"

namespace weft::llm {
namespace {

Extent original_context(const ModelConfig& c) {
  return c.rope_scaling.original_context > 0 ? c.rope_scaling.original_context : c.context;
}

}  // namespace

std::vector<int> rope_axes(const ModelConfig& c) {
  std::vector<int> axes;
  const Extent pairs = c.rope_dims / 2, height = c.rope_sections[1], width = c.rope_sections[2];
  for (Extent i = 0; i < pairs; ++i) {
    if (c.rope_interleaved)
      axes.push_back(i % 3 == 1 && i < 3 * height ? 1 : i % 3 == 2 && i < 3 * width ? 2 : 0);
    else
      axes.push_back(i < c.rope_sections[0] ? 0 : i < c.rope_sections[0] + height ? 1 : 2);
  }
  return axes;
}

std::optional<Extent> short_positions(const ModelConfig& c) {
  const RopeScaling& s = c.rope_scaling;
  if (s.kind != RopeScaling::Kind::longrope || s.short_factors == s.long_factors) return {};
  return original_context(c);
}

RopeTable rope_table(const ModelConfig& c, Extent length, bool local) {
  local = local && c.rope_local_base > 0;
  RopeTable table;
  const Extent width = local && c.rope_local_dims > 0 ? c.rope_local_dims : c.rope_dims;
  const double base = local ? c.rope_local_base : c.rope_base, dims = static_cast<double>(width);
  const RopeScaling none;
  const RopeScaling& s = local ? none : c.rope_scaling;
  const auto original = static_cast<double>(original_context(c));
  const std::vector<double>* factors = nullptr;
  if (s.kind == RopeScaling::Kind::longrope)
    factors = static_cast<double>(length) > original ? &s.long_factors : &s.short_factors;
  // yarn: the pair that makes `beta` turns within the original context.
  const auto pair_of = [&](double beta) {
    return dims * std::log(original / (beta * 2 * M_PI)) / (2 * std::log(base));
  };
  const double first = pair_of(s.beta_fast), last = pair_of(s.beta_slow);
  const double low = std::max(0.0, s.truncate ? std::floor(first) : first),
               high = std::min(dims - 1, s.truncate ? std::ceil(last) : last);
  for (Extent i = 0; i < width / 2; ++i) {
    double f = std::pow(base, -2.0 * static_cast<double>(i) / dims);
    switch (s.kind) {
      case RopeScaling::Kind::none: break;
      case RopeScaling::Kind::linear: f /= s.factor; break;
      case RopeScaling::Kind::llama3: {
        const double wave = 2 * M_PI / f;
        if (wave > original / s.low_frequency_factor) {
          f /= s.factor;
        } else if (wave >= original / s.high_frequency_factor) {
          const double smooth =
              (original / wave - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
          f = (1 - smooth) * f / s.factor + smooth * f;
        }
        break;
      }
      case RopeScaling::Kind::yarn: {
        const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
        f = f / s.factor * ramp + f * (1 - ramp);
        break;
      }
      case RopeScaling::Kind::longrope:
        if (!factors->empty()) f /= (*factors)[static_cast<std::size_t>(i)];
        break;
    }
    if (!local && c.rope_pairs > 0 && i >= c.rope_pairs) f = 0;
    table.frequencies.push_back(f);
  }
  const auto grown = [&](double by) { return 0.1 * by * std::log(s.factor) + 1; };
  if (s.attention_factor > 0)
    table.magnitude = s.attention_factor;
  else if (s.kind == RopeScaling::Kind::yarn && s.factor > 1)
    table.magnitude = s.mscale != 0 && s.mscale_all_dim != 0 ? grown(s.mscale) / grown(s.mscale_all_dim) : grown(1);
  else if (s.kind == RopeScaling::Kind::longrope && s.factor > 1)
    table.magnitude = std::sqrt(1 + std::log(s.factor) / std::log(original));
  return table;
}

}  // namespace weft::llm
