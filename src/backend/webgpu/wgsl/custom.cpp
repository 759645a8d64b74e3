#include "backend/webgpu/wgsl/custom.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>
#include <utility>

#include "backend/webgpu/wgsl/steps.hpp"
#include "ops/parse.hpp"
#include "weft/error.hpp"

namespace weft::webgpu {
namespace {

/// Names in the expression for the number of workgroups, and their values for a call.
struct Counts {
  std::vector<std::string> names;
  std::vector<double> values;
  void add(std::string name, double value) {
    names.push_back(std::move(name));
    values.push_back(value);
  }
  void add_shape(const std::string& name, const Shape& shape) {
    add(name + "_size", static_cast<double>(shape.numel()));
    for (int d = 0; d < shape.rank(); ++d) add(fmt::format("{}_{}", name, d), static_cast<double>(shape[d]));
  }
};

std::string_view value_type(DType type) {
  switch (type) {
    case DType::i32: return "i32";
    case DType::u32: return "u32";
    case DType::boolean: return "bool";
    default: return "f32";
  }
}

// f32 text that reads back as the same number.
std::string literal(double value) {
  const auto number = static_cast<float>(value);
  return std::isfinite(number) ? fmt::format("f32({:.9g})", number)
                               : fmt::format("bitcast<f32>({}u)", std::bit_cast<std::uint32_t>(number));
}

std::string shape_constants(const std::string& name, const Shape& shape) {
  std::vector<std::string> extents;
  for (Extent extent : shape) extents.push_back(fmt::format("{}u", extent));
  if (extents.empty()) extents.emplace_back("1u");  // WGSL has no arrays without elements
  return fmt::format("const {0}_size = {1}u;\nconst {0}_shape = array<u32, {2}>({3});\n", name, shape.numel(),
                     extents.size(), fmt::join(extents, ", "));
}

/// The text with its dollar signs escaped, so that none becomes the mark of a piece.
std::string without_marks(std::string_view text) {
  std::string out;
  for (const char c : text) out.append(c == '$' ? 2 : 1, c);
  return out;
}

}  // namespace

void check_custom(const KernelDefinition& definition) {
  // Ranks are known only for a call, so every possible extent is allowed here.
  constexpr int kRankMax = 8;
  std::vector<std::string> names = {"workgroup_size"};
  const auto add = [&](const std::string& name) {
    names.push_back(name + "_size");
    for (int d = 0; d < kRankMax; ++d) names.push_back(fmt::format("{}_{}", name, d));
  };
  for (const std::string& input : definition.inputs) add(input);
  for (int k = 0; k < kRankMax; ++k) add(fmt::format("out{}", k));
  for (const auto& [name, value] : definition.attributes) names.push_back(name);
  scalar::parse(definition.workgroups, names);
}

void render_custom(const KernelDefinition& definition, const KernelAttributes& attributes,
                   const kernel::CallKernel& kernel, const Target& target, Rendered& rendered) {
  Counts counts;
  counts.add("workgroup_size", definition.workgroup_size);
  Bindings bindings(target, kernel.name);
  std::vector<int> inputs, outs;
  for (const kernel::Operand& operand : kernel.reads) inputs.push_back(bindings.add(operand, false));
  for (const kernel::Operand& operand : kernel.outs) outs.push_back(bindings.add(operand, true));
  for (int handle : outs) bindings.forbid_vectors(handle);
  bindings.resolve();
  // The user's body uses these names directly.
  ShaderPieces shader{.threads = definition.workgroup_size};
  for (const auto& [name, value] : attributes) {
    counts.add(name, value);
    shader.verbatim += fmt::format("const {} = {};\n", name, literal(value));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = definition.inputs[i];
    const std::string_view type = value_type(kernel.reads[i].type);
    counts.add_shape(name, kernel.shapes[i]);
    shader.verbatim += shape_constants(name, kernel.shapes[i]);
    const bool is_bound = bindings.is_bound(inputs[i]);
    const std::string value = is_bound ? bindings.load(inputs[i], fmt::format("i + {}u", bindings.base(inputs[i])))
                                       : fmt::format("{}()", type);
    shader.functions.push_back({name, fmt::format("(i: u32) -> {0} {{\n  if (i >= {1}u) {{ return {0}(); }}\n"
                                                  "  return {2};\n}}\n",
                                                  type, kernel.shapes[i].numel(), value)});
  }
  for (std::size_t k = 0; k < outs.size(); ++k) {
    const std::string name = fmt::format("out{}", k);
    counts.add_shape(name, kernel.out_shapes[k]);
    shader.verbatim += shape_constants(name, kernel.out_shapes[k]);
    const std::string store = bindings.is_bound(outs[k])
                                  ? bindings.store(outs[k], fmt::format("i + {}u", bindings.base(outs[k])), "value")
                                  : "";
    shader.functions.push_back(
        {fmt::format("store{}", k), fmt::format("(i: u32, value: {}) {{\n  if (i < {}u) {{ {} }}\n}}\n",
                                                value_type(kernel.outs[k].type), kernel.out_shapes[k].numel(), store)});
  }
  const double wanted = scalar::evaluate(scalar::parse(definition.workgroups, counts.names), counts.values);
  if (!(wanted >= 0 && wanted <= 0x1p40))
    throw UsageError(fmt::format("{}: \"{}\" gives {} workgroups", definition.name, definition.workgroups, wanted));
  const auto groups = static_cast<std::uint64_t>(std::ceil(wanted));
  if (groups == 0) return;
  shader.body = fmt::format("  let index = group * {}u + thread;\n{}\n", definition.workgroup_size,
                            without_marks(definition.wgsl));
  rendered.dispatches.push_back(dispatch_of(kernel.name, std::move(shader), bindings, groups, target));
}

}  // namespace weft::webgpu
