// The products of one tile in order, and the slabs that each must load.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu::attention {

void AttentionWriter::plan_phases() {
  const auto buffers = buffers_of(block_);
  const auto buffer_of = [&](Matter matter) { return buffers[static_cast<std::size_t>(matter)]; };
  std::array<std::pair<int, int>, 3> held;  // matter and slice
  held.fill({-1, -1});
  // A slab of owned rows with its own buffer is loaded once.
  for (int m = 0; m < kMatters; ++m) {
    const int buffer = buffers[static_cast<std::size_t>(m)];
    const bool alone = buffer >= 0 && std::count(buffers.begin(), buffers.end(), buffer) == 1;
    if (alone && slices() == 1 && is_owned(static_cast<Matter>(m))) {
      resident_.push_back({static_cast<Matter>(m), buffer});
      held[static_cast<std::size_t>(buffer)] = {m, 0};
    }
  }
  bool shares = false;
  const auto add = [&](Product product, int slice, int left, int right, std::initializer_list<Matter> wanted) {
    Phase phase{product, slice, left, right, {}, shares};
    if (shares) held[static_cast<std::size_t>(buffers[kMatters])] = {kMatters, 0};
    shares = false;
    for (const Matter matter : wanted) {
      auto& is = held[static_cast<std::size_t>(buffer_of(matter))];
      const std::pair<int, int> needed{static_cast<int>(matter), slice};
      if (is != needed) phase.loads.push_back({matter, buffer_of(matter)});
      is = needed;
    }
    phases_.push_back(std::move(phase));
  };
  const Matter owned1 = owns_queries() ? Matter::q : Matter::k, other1 = owns_queries() ? Matter::k : Matter::q;
  const Matter owned2 = owns_queries() ? Matter::d_o : Matter::v, other2 = owns_queries() ? Matter::v : Matter::d_o;
  for (int s = 0; s < slices(); ++s) add(Product::score, s, buffer_of(owned1), buffer_of(other1), {owned1, other1});
  if (part_ != Part::forward)
    for (int s = 0; s < slices(); ++s) add(Product::slope, s, buffer_of(owned2), buffer_of(other2), {owned2, other2});
  const auto add_results = [&](Product product, Matter matter) {
    shares = true;
    for (int s = slices(); s-- > 0;) add(product, s, buffers[kMatters], buffer_of(matter), {matter});
  };
  if (part_ == Part::forward) add_results(Product::result, Matter::v);
  if (part_ == Part::d_key_value) add_results(Product::second, Matter::d_o);
  if (part_ != Part::forward) add_results(Product::result, owns_queries() ? Matter::k : Matter::q);
}

}  // namespace weft::webgpu::attention
