// The whole shader, and the reads of rows of A.
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/quantised.hpp"
#include "backend/webgpu/wgsl/quantised/chosen_rows.hpp"
#include "backend/webgpu/wgsl/quantised/computed_rows.hpp"

namespace weft::webgpu {
using kernel::PackedMatmulKernel;

namespace {

constexpr int kProductThreads = 128;  // of a workgroup of the product

}  // namespace

RowsWriter::RowsWriter(const PackedMatmulKernel& kernel, const Target& target, const PackedMatmulKernel* before)
    : kernel_(kernel), before_(before), target_(target) {
  rows_ = static_cast<int>(std::min(kernel.m, kFewRows));
  lanes_ = target.subgroup_size >= 2 ? static_cast<int>(std::min(target.subgroup_size, 32u)) : 32;
  // Each read of A serves several rows of W, as long as there is work for all compute units.
  columns_ = rows_ > 2 || before ? 1 : kernel.n >= 32768 ? 4 : kernel.n >= 8192 ? 2 : 1;
}

void RowsWriter::render(Rendered& rendered) {
  Bindings bindings(target_, kernel_.name);
  Helpers helpers;
  const int a = kernel_.rows ? -1 : bindings.add(kernel_.a, false);
  by_fours_ = !kernel_.rows && kernel_.k % 4 == 0 && kernel_.a_row % 4 == 0 && kernel_.a.offset % 4 == 0;
  if (by_fours_) bindings.want_vectors(a);
  const int chosen = kernel_.chosen ? bindings.add(*kernel_.chosen, false) : -1;
  std::optional<ComputedRows> computed;
  if (kernel_.rows) computed.emplace(*kernel_.rows, bindings, helpers);
  const PackedReader reader(kernel_.block_type, kernel_.weights, kernel_.n, kernel_.k, bindings);
  std::optional<PackedReader> reader_before;
  if (before_) reader_before.emplace(kernel_.block_type, before_->weights, kernel_.n, kernel_.k, bindings, "_before");
  const kernel::LoopKernel epilogue = before_ ? epilogue_of_both() : without_inner(kernel_.epilogue);
  const Space space{{{"i", kernel_.m}, {"j", kernel_.n}}, -1};
  StepWriter writer(epilogue, bindings, helpers, space, space);
  bindings.resolve();
  by_fours_ = by_fours_ && bindings.has_vectors(a);
  ShaderPieces shader{.threads = kProductThreads, .subgroups = target_.subgroup_size >= 2};
  reader.declare(shader);
  if (before_) reader_before->declare(shader);
  if (computed)
    computed->declare(shader);
  else
    shader.functions.push_back(activation_function(a, bindings));
  sums_ = computed ? computed->sums() : 0;
  shader.functions.push_back(finish_function(epilogue, writer, helpers));
  if (kernel_.chosen) shader.functions.push_back(is_chosen_function(kernel_, chosen, bindings));
  if (!shader.subgroups) shader.share("joined", "f32", kProductThreads);
  shader.helpers = std::move(helpers);
  const Extent teams = kProductThreads / lanes_;
  const Extent groups_n = divide_up(kernel_.n, teams * columns_), groups_m = divide_up(kernel_.m, rows_);
  const auto groups = static_cast<std::uint64_t>(groups_n * groups_m);
  line(fmt::format("let lane = {};", modulo("thread", lanes_)));
  line(fmt::format("let i0 = {} * {}u;", divided("group", groups_n), rows_));
  line(fmt::format("let j0 = ({} * {}u + {}) * {}u;", modulo("group", groups_n), teams, divided("thread", lanes_),
                   columns_));
  if (kernel_.chosen) write_units(reader);
  write_sums(reader, "s");
  std::vector<std::string> joined = sums_of("s");
  if (before_) {
    write_sums(*reader_before, "u");
    for (const std::string& name : sums_of("u")) joined.push_back(name);
  }
  write_joined(joined);
  if (computed) write_factors();
  write_results();
  shader.body = std::move(text_);
  rendered.dispatches.push_back(dispatch_of(before_ ? before_->name + " + " + kernel_.name : kernel_.name,
                                            std::move(shader), bindings, groups, target_));
}

ShaderPieces::Function RowsWriter::activation_function(int a, const Bindings& bindings) const {
  const Extent base = bindings.base(a);
  const bool whole = kernel_.k % kQuantBlock == 0;
  const std::string row = fmt::format("min(i, {}u) * {}u", kernel_.m - 1, static_cast<std::uint32_t>(kernel_.a_row));
  std::string text = "(i: u32, e: u32) -> vec4f {\n";
  if (by_fours_) {
    const std::string at = whole ? "e" : fmt::format("min(e, {}u)", kernel_.k - 4);
    const std::string value = bindings.vector(a, fmt::format("({} + {} + {}u) >> 2u", row, at, base));
    text += whole ? fmt::format("  return {};\n", value)
                  : fmt::format("  return select(vec4f(), {}, e < {}u);\n", value, kernel_.k);
  } else {
    text += fmt::format("  let row = {} + {}u;\n  return vec4f(", row, base);
    for (int c = 0; c < 4; ++c) {
      const std::string at = fmt::format("row + min(e + {}u, {}u)", c, kernel_.k - 1);
      text += fmt::format("{}select(0f, {}, e + {}u < {}u)", c ? ", " : "", bindings.load(a, at), c, kernel_.k);
    }
    text += ");\n";
  }
  return {"activations", text + "}\n"};
}

void RowsWriter::write_units(const PackedReader& reader) {
  std::string any;
  for (int i = 0; i < rows_; ++i) any += fmt::format("{}$is_chosen(i0 + {}u)", any.empty() ? "" : " || ", i);
  line(fmt::format("let units = select(0u, {}u, {});", reader.units(), any));
}

}  // namespace weft::webgpu
