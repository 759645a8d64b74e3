// What the parts of attention on subgroup matrices share: operands, products, results.
#include "backend/webgpu/wgsl/attention/matrix_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weft::webgpu::attention {
using kernel::AttentionKernel;
using Tensor = AttentionKernel::Tensor;

namespace {

std::string eighths(Extent elements) { return fmt::format("{}u", static_cast<std::uint32_t>(elements / 8)); }

}  // namespace

MatrixAttentionWriter::MatrixAttentionWriter(const AttentionKernel& kernel, Part part, const kernel::Operand& delta,
                                             const Ranges& ranges, const MatrixAttentionBlock& block,
                                             const Target& target, Rendered& rendered)
    : kernel_(kernel),
      part_(part),
      delta_operand_(delta),
      ranges_(ranges),
      block_(block),
      target_(target),
      rendered_(rendered),
      bindings_(target, kernel.name),
      bounds_(bounds_of(kernel, part != Part::d_key_value)),
      extras_(kernel, part != Part::d_key_value, bindings_, helpers_) {
  matrices_ = static_cast<int>(divide_up(kernel.width, 16 * block.slices)) * block.slices;
  owned_ = owns_queries() ? kernel.queries : kernel.keys;
  others_ = owns_queries() ? kernel.keys : kernel.queries;
}

bool MatrixAttentionWriter::fits() const {
  return workgroup_bytes() <= static_cast<int>(target_.limits.workgroup_bytes) &&
         block_.threads() <= static_cast<int>(target_.limits.workgroup_invocations);
}

bool MatrixAttentionWriter::is_possible() {
  if (!fits()) return false;
  bind();
  for (const Halves* halves : {&own_first_, &own_second_, &other_first_, &other_second_})
    if (halves->tensor && !bindings_.has_eights(halves->handle)) return false;
  for (const Results* results : {&first_, &second_})
    if (results->tensor && !bindings_.has_vectors(results->handle)) return false;
  return true;
}

void MatrixAttentionWriter::render() {
  bind();
  write_place();
  if (is_forward()) {
    write_forward();
  } else {
    write_backward();
  }
  const Extent heads = owns_queries() ? kernel_.heads : kernel_.kv_heads;
  const auto groups =
      static_cast<std::uint64_t>(kernel_.batch * heads * divide_up(owned_, block_.rows()) * block_.slices);
  const bool votes = (is_forward() && rises()) || (extras_.drops() && shares_words());
  ShaderPieces shader{.threads = block_.threads(), .subgroups = votes, .matrices = true};
  shader.share("scores", "vec4<u32>", block_.subgroups * own_size());
  shader.share("staged_first", "vec4<u32>", block_.tile * pitch());
  shader.share("staged_second", "vec4<u32>", block_.tile * pitch());
  if (has_row_values()) shader.share("row_values", "f32", block_.threads());
  if (is_forward()) shader.share("again", "u32", flags());
  if (part_ == Part::d_key_value) shader.share("query_stats", "vec4f", block_.tile / 2);
  shader.functions.push_back({"halves", "(v: vec2f) -> u32 { return bitcast<u32>(vec2<f16>(v)); }\n"});
  if (scales())
    shader.functions.push_back({"scaled",
                                "(v: vec4<u32>, scale: f32) -> vec4<u32> {\n"
                                "  let even = bitcast<vec4f>(v << vec4<u32>(16u)) * scale;\n"
                                "  let odd = bitcast<vec4f>(v & vec4<u32>(0xffff0000u)) * scale;\n"
                                "  return vec4<u32>($halves(vec2f(even.x, odd.x)), $halves(vec2f(even.y, odd.y)),\n"
                                "                   $halves(vec2f(even.z, odd.z)), $halves(vec2f(even.w, odd.w)));\n"
                                "}\n"});
  if (guards()) shader.functions.push_back(special_halves());
  shader.helpers = std::move(helpers_);
  shader.body = std::move(text_);
  const char* suffix = is_forward() ? ".matrices" : part_ == Part::d_query ? ".matrices.dq" : ".matrices.dkv";
  rendered_.dispatches.push_back(dispatch_of(kernel_.name + suffix, std::move(shader), bindings_, groups, target_));
}

// Going forward, shares take the memory of the scores where threads read all of these first; after barriers they have
// their own, which saves two of four.
int MatrixAttentionWriter::shares_at() const { return strict() ? 16 * score_pitch() : 0; }

int MatrixAttentionWriter::second_at() const { return block_.interleaved ? 16 * score_pitch() : 0; }
int MatrixAttentionWriter::slopes_at() const { return block_.interleaved ? second_at() : 3 * block_.subgroup_rows; }
int MatrixAttentionWriter::own_size() const {
  constexpr int kSharePitch = 3, kMovedPitch = 5;
  const int rows = block_.subgroup_rows, scores = 16 * score_pitch();
  const int needed = is_forward() ? std::max(scores, shares_at() + rows * kSharePitch)
                                  : std::max(second_at() + scores, slopes_at() + rows * kSharePitch);
  return std::max(needed, rows * kMovedPitch);
}

int MatrixAttentionWriter::workgroup_bytes() const {
  return 16 * (block_.subgroups * own_size() + 2 * block_.tile * pitch()) +
         (has_row_values() ? 4 * block_.threads() : 0) + 4 * flags() +
         (part_ == Part::d_key_value ? 8 * block_.tile : 0);
}

MatrixAttentionWriter::Halves MatrixAttentionWriter::bind_halves(char name, const Tensor& tensor, bool of_keys) {
  const Halves halves{&tensor, name, of_keys, bindings_.add(tensor.operand, false)};
  bindings_.want_eights(halves.handle);
  return halves;
}

MatrixAttentionWriter::Results MatrixAttentionWriter::bind_results(const Tensor& tensor, bool of_keys) {
  const Results results{&tensor, of_keys, bindings_.add(tensor.operand, true)};
  bindings_.want_vectors(results.handle);
  return results;
}

void MatrixAttentionWriter::bind() {
  if (other_first_.tensor) return;
  const Halves q = bind_halves('q', kernel_.q, false), k = bind_halves('k', kernel_.k, true),
               v = bind_halves('v', kernel_.v, true);
  if (is_forward()) {
    own_first_ = q, other_first_ = k, other_second_ = v;
    first_ = bind_results(kernel_.o, false);
    logsumexp_ = bindings_.add(kernel_.logsumexp, true);
  } else {
    const Halves d_o = bind_halves('g', kernel_.d_o, false);
    logsumexp_ = bindings_.add(kernel_.logsumexp, false);
    delta_ = bindings_.add(delta_operand_, false);
    if (owns_queries()) {
      own_first_ = q, own_second_ = d_o, other_first_ = k, other_second_ = v;
      first_ = bind_results(kernel_.d_q, false);
    } else {
      own_first_ = k, own_second_ = v, other_first_ = q, other_second_ = d_o;
      first_ = bind_results(kernel_.d_k, true);
      second_ = bind_results(kernel_.d_v, true);
    }
    bindings_.forbid_vectors(delta_);
  }
  bindings_.forbid_vectors(logsumexp_);
  if (scales()) {
    words_ = bindings_.add(ranges_.words, false);
    bindings_.forbid_vectors(words_);
  }
  extras_.bind(bindings_);
  bindings_.resolve();
}

/// Where the batch and head of a tensor begin, counted in groups of `by`.
std::string MatrixAttentionWriter::offset(const Tensor& tensor, bool of_keys, Extent base, int by) const {
  const auto unsigned_text = [&](Extent elements) {
    return fmt::format("{}u", static_cast<std::uint32_t>(elements / by));
  };
  return fmt::format("batch * {} + {} * {} + {}", unsigned_text(tensor.batch_stride), of_keys ? "kv_head" : "head",
                     unsigned_text(tensor.head_stride), unsigned_text(base));
}

void MatrixAttentionWriter::write_at(const Halves& halves) {
  line(fmt::format("let {}_at = {};", halves.name,
                   offset(*halves.tensor, halves.of_keys, bindings_.base(halves.handle), 8)));
}

// Eight channels of a row that exists; zeros beyond the width.
std::string MatrixAttentionWriter::eight(const Halves& halves, const std::string& row,
                                         const std::string& vector) const {
  const Extent eights = kernel_.width / 8;
  const auto at = [&](const std::string& v) {
    return fmt::format("{}[{}_at + ({}) * {} + {}]", bindings_.array_of(halves.handle), halves.name, row,
                       eighths(halves.tensor->row_stride), v);
  };
  if (eights == vectors()) return at(vector);
  return fmt::format("select(vec4<u32>(), {}, {} < {}u)", at(fmt::format("min({}, {}u)", vector, eights - 1)), vector,
                     eights);
}

std::string MatrixAttentionWriter::halved(const Halves& halves, const std::string& eight) const {
  return scales() ? fmt::format("$scaled({}, {}_scale)", eight, halves.name) : eight;
}

// The factors of the group's operands, and of products of them. A group that does not fit is left to the kernels in f32.
void MatrixAttentionWriter::write_ranges() {
  if (!scales()) return;
  add_lines(range_lines(kernel_, ranges_, bindings_, words_));
  line("if (!fits_halves) { return; }");
  for (const Halves* halves : {&own_first_, &own_second_, &other_first_, &other_second_})
    if (halves->tensor) line(fmt::format("let {}_scale = {};", halves->name, power_of_two(scale_of(halves->name))));
  line(fmt::format("let score_unit = {};", power_of_two("score_exponent")));
  if (!scales_read_scores())
    line(fmt::format("let score_scale = score_unit * {};",
                     render_constant(kernel_.scale * kLog2E, DType::f32, helpers_)));
}

std::string MatrixAttentionWriter::stat(int handle, const std::string& row) const {
  return fmt::format("(batch * {}u + head) * {}u + {} + {}u", kernel_.heads, kernel_.queries, row,
                     bindings_.base(handle));
}

void MatrixAttentionWriter::write_place() {
  if (block_.slices > 1) {
    line(fmt::format("let slice = {};", modulo("group", block_.slices)));
    line(fmt::format("let rows_group = {};", divided("group", block_.slices)));
  }
  add_lines(place_lines(kernel_, place()));
  write_ranges();
  line("let lane = thread & 31u;");
  line(fmt::format("let own = subgroup * {}u;", own_size()));
  line(fmt::format("let row0 = begin + subgroup * {}u;", block_.subgroup_rows));
  line(fmt::format("let lane_row = {};", modulo("lane", block_.subgroup_rows)));
  line(fmt::format("let part = {};", lanes() == 1 ? "0u" : divided("lane", block_.subgroup_rows)));
  // A thread's scores are in one component of vectors that are `score_pitch` apart.
  line(fmt::format("let score_at = own + lane_row / 4u + part * {}u;", 2 * score_pitch()));
  line("let component = lane_row & 3u;");
  line("let share_at = own + lane_row * 3u;");
  for (const Halves* halves : {&own_first_, &own_second_}) {
    if (!halves->tensor) continue;
    write_at(*halves);
    write_owned(*halves, halves == &own_first_ ? "a" : "b");
  }
  write_load_place();
  if (!walks_members())
    for (const Halves* halves : {&other_first_, &other_second_}) write_at(*halves);
  write_tile_bounds();
}

// Steps that add the products of 16 staged rows with the owned ones to matrices <into><row>.
std::vector<std::string> MatrixAttentionWriter::products(const std::string& into, const char* array, const char* owned,
                                                         int row) const {
  std::vector<std::string> steps;
  for (int k = 0; k < matrices_; ++k) {
    std::string step = fmt::format("{{ let m = subgroupMatrixLoad<{}, row_major>(&${}, {}u, {}u);", kLeftMatrix, array,
                                   row * pitch() + 2 * k, pitch());
    for (int r = 0; r < row_matrices(); ++r)
      step += fmt::format(" {0}{1} = subgroupMatrixMultiplyAccumulate(m, {2}{1}_{3}, {0}{1});", into, r, owned, k);
    steps.push_back(step + " }");
  }
  return steps;
}

// The same from row `row`, which is text.
void MatrixAttentionWriter::write_products(const std::string& into, const char* array, const char* owned,
                                           const std::string& row) {
  for (int r = 0; r < row_matrices(); ++r) line(fmt::format("{}{} = subgroup_matrix_result<f32, 16, 16>();", into, r));
  for (int k = 0; k < matrices_; ++k) {
    line(fmt::format("{{ let m = subgroupMatrixLoad<{}, row_major>(&${}, {} * {}u + {}u, {}u);", kLeftMatrix, array,
                     row, pitch(), 2 * k, pitch()));
    for (int r = 0; r < row_matrices(); ++r)
      line(fmt::format("  {0}{1} = subgroupMatrixMultiplyAccumulate(m, {2}{1}_{3}, {0}{1});", into, r, owned, k));
    line("}");
  }
}

// result += shares at `from` of the subgroup's memory * 16 staged rows.
void MatrixAttentionWriter::write_accumulate(const std::string& result, int from, const char* array, int row) {
  line("{");
  for (int r = 0; r < row_matrices(); ++r)
    line(fmt::format("let shares{} = subgroupMatrixLoad<{}, row_major>(&$scores, own + {}u, 3u);", r, kLeftMatrix,
                     from + r * 48));
  for (int d = 0; d < result_matrices(); ++d) {
    line(fmt::format("{{ let m = subgroupMatrixLoad<{}, row_major>(&${}, {}u{}, {}u);", kRightMatrix, array,
                     row * pitch() + 2 * d, slice_begin(2), pitch()));
    for (int r = 0; r < row_matrices(); ++r)
      line(fmt::format("  {0}{1}_{2} = subgroupMatrixMultiplyAccumulate(shares{1}, m, {0}{1}_{2});", result, r, d));
    line("}");
  }
  line("}");
}

// Product number i of this thread, of those stored from `at` on.
std::string MatrixAttentionWriter::product(int i, int at) const {
  return fmt::format("bitcast<f32>($scores[score_at + {}u][component])", at + key_of(i) * score_pitch());
}

std::string MatrixAttentionWriter::score(int i) const {
  return product(i, 0) + (scales_read_scores() ? " * score_unit" : "");
}

// Stores matrices <name><row>_<channels>, times `factor`, which may refer to the row `r` of the subgroup.
void MatrixAttentionWriter::write_results(const Results& results, const std::string& name, const std::string& factor) {
  const Tensor& t = *results.tensor;
  line("{");
  line(fmt::format("let results_at = {}{};", offset(t, results.of_keys, bindings_.base(results.handle), 4),
                   slice_begin(4)));
  for (int d = 0; d < result_matrices(); ++d) {
    order();
    for (int r = 0; r < row_matrices(); ++r)
      line(fmt::format("subgroupMatrixStore<row_major>(&$scores, own + {}u, {}{}_{}, 5u);", 80 * r, name, r, d));
    order();
    for (int r = 0; r < row_matrices(); ++r) {
      std::string inside = owned_ % block_.rows() == 0 ? "" : fmt::format("row0 + r < {}u", owned_);
      const std::string and_if = inside.empty() ? "" : " && ";
      if (block_.slices > 1 && kernel_.width < 16 * matrices_)
        inside += fmt::format("{}{}u + (lane & 1u) * 8u{} < {}u", and_if, 16 * d, slice_begin(16), kernel_.width);
      else if (kernel_.width < 16 * (d + 1))
        inside += fmt::format("{}(lane & 1u) == 0u", and_if);
      line("{");
      line(fmt::format("  let r = lane / 2u + {}u;", 16 * r));
      line("  let place = own + r * 5u + (lane & 1u) * 2u;");
      line(fmt::format("  let four = bitcast<vec4f>($scores[place]){};", factor));
      line(fmt::format("  let next = bitcast<vec4f>($scores[place + 1u]){};", factor));
      line(fmt::format("  let at = results_at + (row0 + r) * {}u + {}u + (lane & 1u) * 2u;",
                       static_cast<std::uint32_t>(t.row_stride / 4), 4 * d));
      const auto store = [&](const char* at, const char* value) {
        if (t.operand.type != DType::f16) return bindings_.store_vec4f(results.handle, at, value, helpers_);
        return fmt::format("{}[{}] = vec2<u32>($halves({}.xy), $halves({}.zw));", bindings_.array_of(results.handle),
                           at, value, value);
      };
      std::string stores = store("at", "four") + " " + store("(at + 1u)", "next");
      if (guards()) stores += " " + finds_nan("place");
      line(inside.empty() ? "  " + stores : fmt::format("  if ({}) {{ {} }}", inside, stores));
      line("}");
    }
  }
  line("}");
}

}  // namespace weft::webgpu::attention
