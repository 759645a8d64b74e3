// Runs compiled graphs on the slow reference evaluator, so that the compiler is tested without any backend.
#pragma once

#include <map>
#include <vector>

#include "compile/compile.hpp"
#include "compile/leaves.hpp"
#include "graph/attention.hpp"
#include "graph/node.hpp"
#include "kernel_reference.hpp"
#include "weft/tensor.hpp"

namespace weft::test {

inline compiler::Target reference_target() {
  compiler::Target target;
  target.name = "reference";
  target.storage_bits = [](DType) { return 8; };  // buffers are vectors of doubles: one "byte" an element
  // The words of reference/packed.hpp.
  target.packed_bytes = [](DType type, Extent n, Extent k) {
    return (bytes_of(type, static_cast<std::size_t>(n * k)) + 3) / 4;
  };
  target.dtypes.assign(std::begin(kAllDTypes), std::end(kAllDTypes));
  target.offset_alignment = 1;
  target.has_kernel = [](const graph::Call& call) {
    constexpr Extent kWidthMax = 128;
    if (call.row().form == graph::KernelForm::scatter_add) return true;
    return call.row().form == graph::KernelForm::attention && graph::fits_tiles(call, kWidthMax);
  };
  return target;
}

/// An argument of the graph: a leaf with values.
class Arguments final : public LeafMaker {
 public:
  Tensor make(const Shape& shape, std::vector<double> values, DType type = DType::f32) override {
    Tensor t(graph::make_node({.kind = graph::Kind::input,
                               .type = type,
                               .shape = shape,
                               .device = {Device::Kind::trace, 0},
                               .ints = {next_++}}));
    for (double& v : values) v = reference::to_type(v, type);
    values_[t.node().get()] = std::move(values);
    return t;
  }
  /// A matrix in the packed layout, whose words are u32 numbers.
  Tensor make_packed(const Shape& shape, std::vector<double> words, DType type) {
    Tensor t(graph::make_node({.kind = graph::Kind::input,
                               .type = type,
                               .shape = shape,
                               .device = {Device::Kind::trace, 0},
                               .ints = {next_++},
                               .packed = !is_block(type)}));
    values_[t.node().get()] = std::move(words);
    return t;
  }
  const std::vector<double>& of(const graph::Node* node) const { return values_.at(node); }

 private:
  Extent next_ = 0;
  std::map<const graph::Node*, std::vector<double>> values_;
};

inline std::vector<std::vector<double>> run_plan(const compiler::Compiled& compiled, const std::vector<Tensor>& outputs,
                                                 const Arguments& arguments) {
  std::vector<reference::Values> buffers;
  for (const auto& buffer : compiled.plan.buffers)
    buffers.emplace_back(buffer.bytes, std::numeric_limits<double>::quiet_NaN());
  for (std::size_t i = 0; i < compiled.leaves.size(); ++i) buffers[i] = arguments.of(compiled.leaves[i].get());
  reference::run(compiled.plan, buffers);
  std::vector<std::vector<double>> results;
  for (std::size_t o = 0; o < outputs.size(); ++o)
    results.push_back(buffers[static_cast<std::size_t>(compiled.output_external[o])]);
  return results;
}

inline std::vector<std::vector<double>> evaluate(const std::vector<Tensor>& outputs, const Arguments& arguments,
                                                 const compiler::Settings& settings = {},
                                                 compiler::Target target = reference_target(),
                                                 std::size_t* kernels = nullptr) {
  compiler::Request request;
  for (const Tensor& t : outputs) request.outputs.push_back(t.node());
  request.may_overwrite.assign(outputs.size(), nullptr);
  const compiler::Compiled compiled = compiler::compile(request, target, settings);
  if (kernels) *kernels = compiled.plan.kernels.size();
  return run_plan(compiled, outputs, arguments);
}

}  // namespace weft::test
