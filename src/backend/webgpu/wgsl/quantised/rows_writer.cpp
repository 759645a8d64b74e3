// The whole shader, and how rows of A are read.
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

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
  // What is read of A serves some rows of W, as long as there is work for all multiprocessors.
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
  const std::string activations = computed ? computed->functions() : activation_function(a, bindings);
  sums_ = computed ? computed->sums() : 0;

  const std::string finish = finish_function(epilogue, writer, helpers);
  const Extent teams = kProductThreads / lanes_;
  const Extent groups_n = divide_up(kernel_.n, teams * columns_), groups_m = divide_up(kernel_.m, rows_);
  const auto groups = static_cast<std::uint64_t>(groups_n * groups_m);
  std::string head;
  if (target_.subgroup_size >= 2) head = "enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n";
  const WorkgroupNumber number = workgroup_number(groups, target_);
  text_ = head + bindings.declarations() + helpers.text() + reader.functions() +
          (before_ ? reader_before->functions() : "") + finish;
  text_ += activations;
  if (kernel_.chosen) text_ += is_chosen_function(kernel_, chosen, bindings);
  if (target_.subgroup_size < 2) text_ += fmt::format("var<workgroup> joined: array<f32, {}>;\n", kProductThreads);
  text_ += fmt::format("@compute @workgroup_size({})\nfn main({}) {{\n  let group = {};\n{}", kProductThreads,
                       number.parameters, number.text, number.guard);
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
  text_ += "}\n";
  rendered.dispatches.push_back(
      {before_ ? before_->name + " + " + kernel_.name : kernel_.name, std::move(text_), bindings.ranges(), groups});
}

std::string RowsWriter::activation_function(int a, const Bindings& bindings) const {
  const Extent base = bindings.base(a);
  const bool whole = kernel_.k % kQuantBlock == 0;
  const std::string row = fmt::format("min(i, {}u) * {}u", kernel_.m - 1, static_cast<std::uint32_t>(kernel_.a_row));
  std::string text = "fn activations(i: u32, e: u32) -> vec4f {\n";
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
  return text + "}\n";
}

void RowsWriter::write_units(const PackedReader& reader) {
  std::string any;
  for (int i = 0; i < rows_; ++i) any += fmt::format("{}is_chosen(i0 + {}u)", any.empty() ? "" : " || ", i);
  line(fmt::format("let units = select(0u, {}u, {});", reader.units(), any));
}

}  // namespace weft::webgpu
