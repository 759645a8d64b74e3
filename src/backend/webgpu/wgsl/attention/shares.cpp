// Turns scores into shares: the online softmax over tiles, and its gradient.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::webgpu::attention {

namespace {

constexpr float kSlack = 16;  // how far (in units of log 2) scores may pass the reference before sums are rescaled

}  // namespace

// The shares that the phase multiplies: computed in registers, and stored once all threads have finished with the buffer.
void AttentionWriter::write_shares(const Phase& phase) {
  const bool first_shares = phase.product == (part_ == Part::d_key_value ? Product::second : Product::result);
  if (first_shares) {
    write_mask();
    if (extras_.drops()) write_kept();
    if (part_ == Part::forward) {
      write_softmax();
      if (extras_.drops())
        for_each_score([&](int i, int j) {
          line(fmt::format("score{0}_{1} = {2};", i, j, kept(fmt::format("score{}_{}", i, j), i, j)));
        });
    } else {
      for_each_score([&](int i, int j) {
        const std::string log_sum = part_ == Part::d_query ? fmt::format("log_sum{}", i)
                                    : sums_delta()         ? fmt::format("$row_stats[across + {}u].x", j * kAcross)
                                                           : fmt::format("log_sum{}", j);
        line(fmt::format("score{0}_{1} = exp2(score{0}_{1} - {2});", i, j, log_sum));
      });
    }
  }
  if (part_ != Part::forward && phase.product == Product::result)
    for_each_score([&](int i, int j) {
      const std::string delta = part_ == Part::d_query ? fmt::format("delta{}", i)
                                : sums_delta()         ? fmt::format("$row_stats[across + {}u].y", j * kAcross)
                                                       : fmt::format("delta{}", j);
      std::string slope = fmt::format("slope{}_{}", i, j);
      if (extras_.drops()) slope = kept(fmt::format("{} * {}", slope, literal(extras_.grown())), i, j);
      line(fmt::format("score{0}_{1} = score{0}_{1} * ({2} - {3});", i, j, slope, delta));
    });
  line("workgroupBarrier();");
  // Vector q * 8 + across of a row holds this thread's shares of rows (4 q + e) * 8 + across of the tile.
  const bool drops_here = phase.product == Product::second && extras_.drops();
  for (int i = 0; i < block_.lane_rows; ++i)
    for (int q = 0; q < block_.lane_others / 4; ++q) {
      std::string four;
      for (int j = 4 * q; j < 4 * q + 4; ++j) {
        const std::string share = fmt::format("score{}_{}", i, j);
        four += (j > 4 * q ? ", " : "") +
                (drops_here ? kept(fmt::format("{} * {}", share, literal(extras_.grown())), i, j) : share);
      }
      line(fmt::format("$slab{0}[{1} * {2}u + ((across + {3}u) ^ turned{4})] = vec4f({5});", phase.left, own_row(i),
                       share_vectors(block_), q * kAcross, i % 2, four));
    }
}

// The online softmax over tiles: sums are relative to a reference score, and are rescaled only when scores exceed the reference
// by far.
void AttentionWriter::write_softmax() {
  std::vector<std::string> tops;
  std::string excess;
  for (int i = 0; i < block_.lane_rows; ++i) {
    std::string top = fmt::format("score{}_0", i);
    for (int j = 1; j < block_.lane_others; ++j) top = fmt::format("max({}, score{}_{})", top, i, j);
    line(fmt::format("var next_top{} = {};", i, top));
    tops.push_back(fmt::format("next_top{}", i));
    const std::string by = fmt::format("next_top{0} - top{0}", i);
    excess = excess.empty() ? by : fmt::format("max({}, {})", excess, by);
  }
  if (needs_exchange()) {
    write_join(tops, true);
    line("{");
  } else {
    line(fmt::format("if (subgroupAny({} > {})) {{", excess, literal(kSlack)));
  }
  deeper([&] {
    if (!needs_exchange()) write_join(tops, true);
    for (int i = 0; i < block_.lane_rows; ++i) {
      line(fmt::format("next_top{0} = max(next_top{0}, top{0});", i));
      line(fmt::format("let shrink{0} = exp2(top{0} - next_top{0});", i));
      line(fmt::format("top{0} = next_top{0};", i));
      line(fmt::format("total{0} = total{0} * shrink{0};", i));
      for (int h = 0; h < columns(); ++h) line(fmt::format("result{0}_{1} = result{0}_{1} * shrink{0};", i, h));
    }
  });
  line("}");
  for (int i = 0; i < block_.lane_rows; ++i) {
    std::string sum = fmt::format("total{}", i);
    for (int j = 0; j < block_.lane_others; ++j) {
      line(fmt::format("score{0}_{1} = exp2(score{0}_{1} - top{0});", i, j));
      sum += fmt::format(" + score{}_{}", i, j);
    }
    line(fmt::format("total{} = {};", i, sum));
  }
}

void AttentionWriter::write_join(const std::vector<std::string>& names, bool maximum) {
  const auto joined = [&](const std::string& name, const std::string& other) {
    return maximum ? fmt::format("{0} = max({0}, {1});", name, other) : fmt::format("{0} = {0} + {1};", name, other);
  };
  if (!needs_exchange()) {
    uses_subgroups_ = true;
    for (const std::string& name : names)
      for (const int distance : interleaved_ ? std::array{1, 4, 8} : std::array{1, 2, 4})
        line(joined(name, fmt::format("subgroupShuffleXor({}, {}u)", name, distance)));
    return;
  }
  for (std::size_t n = 0; n < names.size(); n += 4) {
    std::string four;
    for (std::size_t e = n; e < n + 4; ++e)
      four += fmt::format("{}{}", e > n ? ", " : "", e < names.size() ? names[e] : "0f");
    line(fmt::format("$exchange[thread] = vec4f({});", four));
    line("workgroupBarrier();");
    line("{");
    line(fmt::format("  let row = thread - lane + (lane & {}u);", 0b10010));  // the lowest thread of these rows
    line("  var all = $exchange[row];");
    for (int i = 1; i < kAcross; ++i)
      line("  " + joined("all", fmt::format("$exchange[row + {}u]", (i & 1) | ((i & 6) << 1))));
    for (std::size_t e = n; e < std::min(n + 4, names.size()); ++e)
      line(fmt::format("  {} = all.{};", names[e], "xyzw"[e - n]));
    line("}");
    line("workgroupBarrier();");
  }
}

}  // namespace weft::webgpu::attention
