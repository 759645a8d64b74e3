// Gradients of attention on subgroup matrices. Shares come again from the saved logsumexp: P = exp2(scores - L), and slopes
// are P * (dP - D), with dP the products of dO and V, D = rowsum(dO * O). Then dV += P^T dO and dK += slopes^T Q for owned
// keys, or dQ += slopes K for owned queries.
#include <fmt/format.h>

#include <cmath>

#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

namespace weft::webgpu::attention {

void MatrixAttentionWriter::write_backward() {
  const bool keys = part_ == Part::d_key_value;
  for (int d = 0; d < result_matrices(); ++d) {
    line(fmt::format("var x0_{}: subgroup_matrix_result<f32, 16, 16>;", d));
    if (keys) line(fmt::format("var y0_{}: subgroup_matrix_result<f32, 16, 16>;", d));
  }
  if (keys) {
    line("var pair: vec4f;");
    write_slope_scales();
  } else {
    line(fmt::format("let query = min(row0 + lane_row, {}u);", owned_ - 1));
    line(fmt::format("let log_sum = {};", bindings_.load(logsumexp_, stat(logsumexp_, "query"))));
    line(fmt::format("let minus_log_sum = select(-log_sum * {}, 0f, log_sum < {});",
                     render_constant(kLog2E, DType::f32, helpers_), kUnseen));
    write_slope_scales();
    line(fmt::format("let delta = {}{};", bindings_.load(delta_, stat(delta_, "query")),
                     scales() ? " * delta_scale" : ""));
  }
  write_begin_of_turns();
  if (block_.interleaved) {
    const std::string visible = strict() ? "" : is_visible("other0", block_.tile, true);
    line(visible.empty() ? "{" : fmt::format("if ({}) {{  // some subgroups", visible));
    line("var s0 = subgroup_matrix_result<f32, 16, 16>();");
    line("var t0 = subgroup_matrix_result<f32, 16, 16>();");
    for (const std::string& step : products("s", "staged_first", "a", 0)) line(step);
    for (const std::string& step : products("t", "staged_second", "b", 0)) line(step);
    for (int chunk = 0; chunk < chunks(); ++chunk) write_both_chunk(chunk);
    line("}");
  } else {
    for (int chunk = 0; chunk < chunks(); ++chunk) write_one_by_one_chunk(chunk);
  }
  line("}");
  std::string scale = fmt::format(" * {}", render_constant(kernel_.scale, DType::f32, helpers_)), second_scale;
  if (scales()) {
    // Two factors, as one power of two of both might be beyond f32.
    if (!keys) line("if (part == 0u) { $row_values[subgroup * 32u + lane_row] = slope_unit; }");
    scale = fmt::format(" * {} * ({} * {})", keys ? "slope_unit" : "$row_values[subgroup * 32u + r]",
                        power_of_two(keys ? "exponents.x - 141i" : "exponents.y - 141i"),
                        render_constant(kernel_.scale, DType::f32, helpers_));
    second_scale = fmt::format(" * {}", power_of_two("exponents.w - 141i"));
  }
  write_results(first_, "x", scale);
  if (keys) write_results(second_, "y", second_scale);
}

// Scaled, no |dP - D| is larger than 2 * width * grown * 2^30: numbers of dO and V are below 2^15, and D is a mean of dP. So
// slopes are below 2^15, and fit in halves, if they are multiplied by 2 to this power.
int MatrixAttentionWriter::slope_exponent() const {
  return -16 - static_cast<int>(std::ceil(std::log2(static_cast<double>(kernel_.width)) + std::log2(extras_.grown())));
}

// Declares the factors of dP and of D, and that of slopes back to what they are. An owned query whose row of dO is smaller than
// the largest one has larger factors, as its slopes are smaller.
void MatrixAttentionWriter::write_slope_scales() {
  if (!scales()) return;
  std::string exponent = fmt::format("{}i", slope_exponent());
  if (owns_queries()) {
    constexpr int kRowMost = 28;
    line("var sizes = vec4<u32>();");
    line(fmt::format("for (var v = 0u; v < {}u; v++) {{", kernel_.width / 8));
    line(fmt::format("  let eight = {} & vec4<u32>(0x7fff7fffu);", eight(own_second_, "query", "v")));
    line("  sizes = max(sizes, max(eight & vec4<u32>(0xffffu), eight >> vec4<u32>(16u)));");
    line("}");
    line("let row_exponent = i32(max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)) >> 7u);");
    line(fmt::format("let slope_power = {} + clamp(exponents.w - row_exponent, 0i, {}i);", exponent, kRowMost));
    exponent = "slope_power";
  }
  line(fmt::format("let slope_scale = {} * {};", power_of_two(exponent),
                   render_constant(extras_.grown(), DType::f32, helpers_)));
  line(fmt::format("let delta_scale = {};", power_of_two(exponent + " + 282i - exponents.z - exponents.w")));
  line(fmt::format("let slope_unit = {};", power_of_two("exponents.z + exponents.w - 282i - (" + exponent + ")")));
}

// A chunk whose products are in s0 and t0; those of the next chunk follow among the exponentials.
void MatrixAttentionWriter::write_both_chunk(int chunk) {
  line("{");
  line(fmt::format("let chunk = other0 + {}u;", 16 * chunk));
  line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own, s0, {}u);", score_pitch()));
  line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own + {}u, t0, {}u);", second_at(), score_pitch()));
  order();
  for (int i = 0; i < values(); ++i) {
    line(fmt::format("var p{} = {};", i, score(i)));
    line(fmt::format("var d{} = {};", i, product(i, second_at())));
  }
  order();
  write_mask("p", "chunk");
  std::vector<std::string> next;
  if (chunk + 1 < chunks()) {
    next = {"s0 = subgroup_matrix_result<f32, 16, 16>();", "t0 = subgroup_matrix_result<f32, 16, 16>();"};
    for (const std::string& step : products("s", "staged_first", "a", 16 * (chunk + 1))) next.push_back(step);
    for (const std::string& step : products("t", "staged_second", "b", 16 * (chunk + 1))) next.push_back(step);
  }
  write_slopes(chunk, next);
  line("}");
}

// A chunk whose two products take turns in the same memory, which needs fewer registers.
void MatrixAttentionWriter::write_one_by_one_chunk(int chunk) {
  line("{");
  line(fmt::format("let chunk = other0 + {}u;", 16 * chunk));
  const std::string visible = strict() ? "" : is_visible("chunk", 16, true);
  line(visible.empty() ? "{" : fmt::format("if ({}) {{  // some subgroups", visible));
  const auto one = [&](const char* array, const char* owned, char name) {
    line("{");
    line("var s0 = subgroup_matrix_result<f32, 16, 16>();");
    for (const std::string& step : products("s", array, owned, 16 * chunk)) line(step);
    line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own, s0, {}u);", score_pitch()));
    line("}");
    order();
    for (int i = 0; i < values(); ++i)
      line(fmt::format("var {}{} = {};", name, i, name == 'p' ? score(i) : product(i, 0)));
    order();
  };
  one("staged_first", "a", 'p');
  one("staged_second", "b", 'd');
  write_mask("p", "chunk");
  write_slopes(chunk, {});
  line("}");
  line("}");
}

// From scores p and products d to shares and slopes, in the subgroup's memory; and what they add to the results.
void MatrixAttentionWriter::write_slopes(int chunk, const std::vector<std::string>& between) {
  const bool keys = part_ == Part::d_key_value;
  if (extras_.drops()) write_kept("chunk");
  const std::string grown = render_constant(extras_.grown(), DType::f32, helpers_);
  const auto steps = static_cast<std::size_t>(values() / 2);
  for (int i = 0; i < values(); i += 2) {
    const auto step = static_cast<std::size_t>(i / 2);
    for (std::size_t n = between.size() * step / steps; n < between.size() * (step + 1) / steps; ++n) line(between[n]);
    line("{");
    if (keys) line(fmt::format("  let of_queries = $query_stats[part + {}u];", (16 * chunk + key_of(i)) / 2));
    for (int e = 0; e < 2; ++e) {
      const std::string log_sum = keys ? fmt::format("of_queries.{}", "xy"[e]) : "minus_log_sum";
      const std::string delta = keys ? fmt::format("of_queries.{}", "zw"[e]) : "delta";
      line(fmt::format("  p{0} = exp2(fma(p{0}, {1}, {2}));", i + e, scaled_scores(), log_sum));
      std::string d = fmt::format("d{}", i + e);
      if (extras_.drops()) d = kept(fmt::format("{} * {}", d, scales() ? "slope_scale" : grown), i + e);
      if (scales() && !extras_.drops()) {
        line(fmt::format("  d{0} = p{0} * fma({1}, slope_scale, -{2});", i + e, d, delta));
      } else {
        line(fmt::format("  d{0} = p{0} * ({1} - {2});", i + e, d, delta));
      }
      if (keys && extras_.drops())
        line(fmt::format("  p{0} = {1};", i + e, kept(fmt::format("p{} * {}", i + e, grown), i + e)));
    }
    const auto store = [&](int at, char name) {
      line(fmt::format("  $scores[share_at + {0}u][{1}u + part] = $halves(vec2f({2}{3}, {2}{4}));", at + i / 4,
                       i / 2 % 2 * 2, name, i, i + 1));
    };
    if (keys) store(0, 'p');
    store(slopes_at(), 'd');
    line("}");
  }
  order();
  if (keys) write_accumulate("y", 0, "staged_second", 16 * chunk);
  write_accumulate("x", slopes_at(), "staged_first", 16 * chunk);
  order();
}

}  // namespace weft::webgpu::attention
