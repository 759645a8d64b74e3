// Attention going forward on subgroup matrices.
//
// Sums refer to one number of each row, its reference: the largest of the first 16 scores, and some more. Tiles are not
// rescaled as they come, unless a share would pass f16: then the references of the subgroup's rows rise, and what there is shrinks
// (write_rise). Where the reference was too large for all shares, which the sums tell at the end, the workgroup finds the largest
// score of each row by products alone and starts again. Where subgroups need barriers they cannot rise alone, so their
// workgroup starts again too. Guarded values may need one more attempt (matrix_guard.cpp).
#include <fmt/format.h>

#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

namespace weft::webgpu::attention {
namespace {

// A share is below this power of two, or it may be no f16; where references do not rise, sums are below 60000 therefore. Below the
// least sum shares may have lost bits. Scores that come later are often larger, so the reference is above the first ones by a power
// of two: the largest share of those is 2^-6, and a share may be 2^21 times as large before references rise. Halves have steps of
// 2^-24 near 0, which is less than the rounding of a result in f16 for any sum above the least one. On a device that has no such
// small halves, the reference is the largest of the first scores itself.
constexpr const char *kMostShare = "15f", *kMostSum = "60000f", *kLeastSum = "0.00390625f", *kReferenceAbove = "6f";

}  // namespace

std::string MatrixAttentionWriter::scaled_scores() const {
  if (scales() && !scales_read_scores()) return "score_scale";
  return fmt::format("{:.9g}f", static_cast<double>(static_cast<float>(kernel_.scale * kLog2E)));
}

void MatrixAttentionWriter::write_forward() {
  for (int r = 0; r < row_matrices(); ++r) {
    for (int d = 0; d < matrices_; ++d) line(fmt::format("var o{}_{}: subgroup_matrix_result<f32, 16, 16>;", r, d));
    line(fmt::format("var z{}: subgroup_matrix_result<f32, 16, 16>;", r));
  }
  line(fmt::format("var reference = f32({});", kHidden));
  line("var sum = 0f;");
  line("if (thread == 0u) { $again[0] = 0u; }");
  if (guards()) write_guard();
  write_first_products();
  line("{");
  write_reference(fmt::format("tile_begin * {}u", block_.tile));
  line("}");
  write_join("reference", "max");
  const std::string finish =
      fmt::format("reference = select(reference * {}, 0f, reference < {});", scaled_scores(), kUnseen);
  line(finish);
  line(fmt::format("reference += {};", above()));

  line(fmt::format("for (var attempt = 0u; attempt < {}u; attempt++) {{", guards() ? 3 : 2));
  line("if (attempt > 0u) {");
  if (guards()) line("if (!clean) {");
  write_largest();
  line(finish);
  if (guards()) line("}");
  line("workgroupBarrier();");
  write_first_products();
  line("}");
  line("sum = 0f;");
  for (int r = 0; r < row_matrices(); ++r)
    for (int d = 0; d < matrices_; ++d) line(fmt::format("o{}_{} = subgroup_matrix_result<f32, 16, 16>();", r, d));
  write_begin_of_turns();
  for (int chunk = 0; chunk < chunks(); ++chunk) write_forward_chunk(chunk);
  line("}");
  write_join("sum", "+");
  std::string counts = owned_ % block_.rows() == 0 ? "" : fmt::format(" && row0 + lane_row < {}u", owned_);
  if (extras_.has_spans()) counts += " && span_first < span_end";
  if (bounds_.has_most) counts += fmt::format(" && i32(row0 + lane_row) + i32({}) >= 0i", bounds_.most);
  const char* const most_sum = rises() ? "3e38f" : kMostSum;
  line(fmt::format("if (!(sum <= {}) || (sum < {}{})) {{ $again[0] = 1u; }}", most_sum, kLeastSum, counts));
  if (guards()) {
    line("if (attempt == 0u) { if (workgroupUniformLoad(&$again[0]) != 0u) { continue; } }");
    line("var found_nan = false;");
    write_forward_results();
    write_next_guarded_attempt();
    line("}");
  } else {
    line("if (workgroupUniformLoad(&$again[0]) == 0u) { break; }");
    line("}");
    write_forward_results();
  }
}

void MatrixAttentionWriter::write_forward_results() {
  line("{");
  order();
  line(fmt::format("let inverse = select({} / sum, 0f, sum == 0f){};",
                   render_constant(extras_.grown(), DType::f32, helpers_),
                   scales() ? " * " + power_of_two("exponents.z - 141i") : ""));
  line("if (part == 0u) { $row_values[subgroup * 32u + lane_row] = inverse; }");
  helpers_.use("log_f32");
  const std::string inside = owned_ % block_.rows() == 0 ? "" : fmt::format(" && row0 + lane_row < {}u", owned_);
  line(fmt::format("if (part == 0u{}) {{ {} }}", inside,
                   bindings_.store(logsumexp_, stat(logsumexp_, "row0 + lane_row"),
                                   fmt::format("fma(reference, {}, log_f32(sum))",
                                               render_constant(1 / kLog2E, DType::f32, helpers_)))));
  line("}");
  write_results(first_, "o", " * $row_values[subgroup * 32u + r]");
}

std::string MatrixAttentionWriter::above() const { return target_.tested.rounded_halves ? kReferenceAbove : "0f"; }

// Of a thread's scores in a chunk.
std::string MatrixAttentionWriter::largest_score() const {
  std::string most = "s0";
  for (int i = 1; i < values(); ++i) most = fmt::format("max({}, s{})", most, i);
  return most;
}

// Eight shares of a chunk's scores, in f32 for the sum and as halves for the product.
void MatrixAttentionWriter::write_shares(int eight) {
  line("{");
  for (int i = 0; i < 8; ++i)
    line(fmt::format("  let p{} = exp2(fma(s{}, {}, -reference));", i, 8 * eight + i, scaled_scores()));
  line("  sum += ((p0 + p1) + (p2 + p3)) + ((p4 + p5) + (p6 + p7));");
  const auto pair = [&](int i) {
    return fmt::format("$halves(vec2f({}, {}))", kept(fmt::format("p{}", i), 8 * eight + i),
                       kept(fmt::format("p{}", i + 1), 8 * eight + i + 1));
  };
  line(fmt::format("  $scores[share_at + part + {}u] = vec4<u32>({}, {}, {}, {});", shares_at() + eight, pair(0),
                   pair(2), pair(4), pair(6)));
  line("}");
}

// Raises the references of the subgroup's rows where a share of a chunk's scores would be no f16. The sums and results so far shrink
// by the same factors; matrices go through the memory of the scores for that.
void MatrixAttentionWriter::write_rise() {
  line("{");
  line(fmt::format("var most = {};", largest_score()));
  line(fmt::format("if (subgroupAny(fma(most, {}, -reference) > {})) {{  // some subgroups", scaled_scores(),
                   kMostShare));
  write_join("most", "max");
  line(fmt::format("let risen = max(reference, fma(most, {}, {}));", scaled_scores(), above()));
  line("let factor = exp2(reference - risen);");
  line("reference = risen;");
  line("sum *= factor;");
  line("if (part == 0u) { $row_values[subgroup * 32u + lane_row] = factor; }");
  for (int d = 0; d < result_matrices(); ++d) {
    order();
    for (int r = 0; r < row_matrices(); ++r)
      line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own + {}u, o{}_{}, 5u);", 80 * r, r, d));
    order();
    for (int i = 0; i < 2 * row_matrices(); ++i)  // a thread has half of a row of each matrix
      line(fmt::format(
          "{{ let place = own + (lane / 2u + {0}u) * 5u + (lane & 1u) * 2u + {1}u; $scores[place] = "
          "bitcast<vec4<u32>>(bitcast<vec4f>($scores[place]) * $row_values[subgroup * 32u + lane / 2u + {0}u]); }}",
          i / 2 * 16, i % 2));
    order();
    for (int r = 0; r < row_matrices(); ++r)
      line(fmt::format("o{}_{} = subgroupMatrixLoad<{}, row_major>(&$scores, own + {}u, 5u);", r, d, kResultMatrix,
                       80 * r));
  }
  order();
  line("}");
  line("}");
}

// The products of the first 16 keys.
void MatrixAttentionWriter::write_first_products() {
  write_fill(fmt::format("tile_begin * {}u", block_.tile), 16);
  line("workgroupBarrier();");
  write_products("z", "staged_first", "a", "0u");
}

// The largest score of the 16 that begin at row `first` of the others, of those that the owned row sees.
void MatrixAttentionWriter::write_reference(const std::string& first) {
  order();
  for (int r = 0; r < row_matrices(); ++r)
    line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own + {}u, z{}, {}u);", 4 * r, r, score_pitch()));
  order();
  line(fmt::format("let chunk = {};", first));
  for (int i = 0; i < values(); ++i) line(fmt::format("var s{} = {};", i, score(i)));
  write_mask("s", "chunk");
  line(fmt::format("reference = max(reference, {});", largest_score()));
}

// The largest score of each owned row, by a walk over all keys.
void MatrixAttentionWriter::write_largest() {
  line(fmt::format("reference = {};", kHidden));
  line("for (var turn = 0u; turn < turns; turn++) {");
  write_turn("turn");
  line("workgroupBarrier();");
  write_fill("other0", block_.tile);
  line("workgroupBarrier();");
  line(fmt::format("for (var row = 0u; row < {}u; row += 16u) {{", block_.tile));
  write_products("z", "staged_first", "a", "row");
  write_reference("other0 + row");
  line("}");
  line("}");
  write_join("reference", "max");
}

// Joins a value over the threads that share an owned row.
void MatrixAttentionWriter::write_join(const std::string& value, const char* function) {
  if (lanes() == 1) return;
  order();
  line(fmt::format("$row_values[subgroup * 32u + lane] = {};", value));
  order();
  const std::string other = "$row_values[subgroup * 32u + (lane ^ 16u)]";
  line(std::string_view(function) == "max" ? fmt::format("{0} = max({0}, {1});", value, other)
                                           : fmt::format("{0} = {0} + {1};", value, other));
  order();
}

// One chunk of 16 keys, whose products are in z; those of the next chunk follow among the exponentials.
void MatrixAttentionWriter::write_forward_chunk(int chunk) {
  line("{");
  line(fmt::format("let chunk = other0 + {}u;", 16 * chunk));
  const std::string visible = strict() ? "" : is_visible("chunk", 16, false);
  line(visible.empty() ? "{" : fmt::format("if ({}) {{  // some subgroups", visible));
  for (int r = 0; r < row_matrices(); ++r)
    line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own + {}u, z{}, {}u);", 4 * r, r, score_pitch()));
  order();
  for (int i = 0; i < values(); ++i) line(fmt::format("var s{} = {};", i, score(i)));
  if (!strict()) order();
  write_mask("s", "chunk");
  // Later, among the products or behind the exponentials, the vote takes longer (T 8192: 630 us, here 590, without it 545).
  if (rises()) write_rise();
  for (int r = 0; r < row_matrices(); ++r) line(fmt::format("z{} = subgroup_matrix_result<f32, 16, 16>();", r));
  const std::vector<std::string> next = products("z", "staged_first", "a", 16 * chunk);
  if (extras_.drops()) write_kept("chunk");
  const int groups = values() / 8;
  for (int g = 0; g < groups; ++g) {
    for (std::size_t n = next.size() * static_cast<std::size_t>(g) / static_cast<std::size_t>(groups);
         n < next.size() * static_cast<std::size_t>(g + 1) / static_cast<std::size_t>(groups); ++n)
      line(next[n]);
    write_shares(g);
  }
  order();
  write_accumulate("o", shares_at(), "staged_second", 16 * chunk);
  if (!strict()) order();
  line("}");
  line("}");
}

}  // namespace weft::webgpu::attention
