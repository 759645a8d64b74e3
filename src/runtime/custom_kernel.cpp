// User-defined ops with kernels: a row, and an entry in each backend's table.
#include "weft/custom_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "backend/cpu/calls.hpp"
#include "backend/webgpu/calls.hpp"
#include "backend/webgpu/wgsl/custom.hpp"
#include "graph/no_grad.hpp"
#include "graph/op.hpp"
#include "ops/parse.hpp"

namespace weft {
namespace {

using graph::Call;
using graph::OpRow;
using Definition = std::shared_ptr<const KernelDefinition>;

KernelAttributes attributes_of(const KernelDefinition& definition, const Extent* words) {
  KernelAttributes values;
  for (std::size_t i = 0; i < definition.attributes.size(); ++i)
    values[definition.attributes[i].first] = graph::real_of(words[i]);
  return values;
}

std::vector<ValueType> types_of(const graph::Tensors& tensors) {
  std::vector<ValueType> types;
  for (const Tensor& t : tensors) types.push_back({t.dtype(), t.shape()});
  return types;
}

std::vector<graph::Result> inferred(const KernelDefinition& definition, const Call& call) {
  std::vector<graph::Result> results;
  for (const ValueType& type :
       definition.shape(types_of(call.inputs()), attributes_of(definition, call.words().data())))
    results.push_back({type.dtype, type.shape});
  if (results.empty()) throw UsageError(fmt::format("{}: its shape function gave no result", definition.name));
  for (const graph::Result& result : results)
    for (Extent extent : result.shape)
      if (extent < 0)
        throw ShapeError(fmt::format("{}: its shape function gave {}", definition.name, result.shape.to_string()));
  return results;
}

graph::Tensors gradients(const KernelDefinition& definition, const graph::GradientCall& g) {
  KernelGradient given{g.call.inputs(), g.results, g.gradients, attributes_of(definition, g.call.words().data())};
  graph::Tensors results = definition.gradient(given);
  if (results.size() > g.call.inputs().size())
    throw UsageError(fmt::format("{}: its gradient gave {} tensors for {} inputs", definition.name, results.size(),
                                 g.call.inputs().size()));
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i].defined() && results[i].shape() != g.call.input(i).shape())
      throw ShapeError(fmt::format("{}: its gradient to {} is {}, and {} is {}", definition.name, definition.inputs[i],
                                   results[i].shape().to_string(), definition.inputs[i],
                                   g.call.input(i).shape().to_string()));
  results.resize(g.call.inputs().size());
  return results;
}

void run_on_cpu(const KernelDefinition& definition, const kernel::CallKernel& kernel, std::span<char* const> reads,
                std::span<char* const> outs) {
  std::vector<KernelArguments::Operand> inputs, outputs;
  for (std::size_t i = 0; i < reads.size(); ++i)
    inputs.push_back(
        {fmt::format("{}: {}", definition.name, definition.inputs[std::min(i, definition.inputs.size() - 1)]),
         {kernel.reads[i].type, kernel.shapes[i]},
         reads[i]});
  for (std::size_t i = 0; i < outs.size(); ++i)
    outputs.push_back(
        {fmt::format("{}: result {}", definition.name, i), {kernel.outs[i].type, kernel.out_shapes[i]}, outs[i]});
  definition.cpu(
      KernelArguments(std::move(inputs), std::move(outputs), attributes_of(definition, kernel.attributes.data())));
}

bool is_identifier(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

void check(const KernelDefinition& definition) {
  const auto refuse = [&](const std::string& fact) {
    throw UsageError(fmt::format("register_kernel {}: {}", definition.name, fact));
  };
  if (!is_identifier(definition.name)) refuse("the name is not an identifier");
  if (definition.inputs.empty()) refuse("an op has at least one input");
  std::vector<std::string> names = definition.inputs;
  for (const auto& [name, value] : definition.attributes) names.push_back(name);
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!is_identifier(names[i])) refuse(fmt::format("\"{}\" is not an identifier", names[i]));
    if (std::count(names.begin(), names.end(), names[i]) > 1) refuse(fmt::format("{} is named twice", names[i]));
  }
  if (!definition.shape) refuse("it has no shape function, which tells the dtype and shape of its result");
  if (!definition.cpu && definition.wgsl.empty()) refuse("it has no kernel; give cpu, wgsl or both");
  if (definition.workgroup_size < 1 || definition.workgroup_size > 256)
    refuse(fmt::format("a workgroup of {} threads; give 1 to 256", definition.workgroup_size));
}

}  // namespace

void throw_out_of_bounds(const std::string& operand, Extent index, Extent count) {
  throw UsageError(fmt::format("{}: element {} of {}", operand, index, count));
}

const KernelArguments::Operand& KernelArguments::checked(const std::vector<Operand>& operands, std::size_t i,
                                                         DType type) {
  if (i >= operands.size())
    throw UsageError(
        fmt::format("operand {} of {}; {} are there", i, operands.empty() ? "" : operands[0].name, operands.size()));
  if (operands[i].type.dtype != type)
    throw DTypeError(fmt::format("{} is {}, not {}", operands[i].name, name_of(operands[i].type.dtype), name_of(type)));
  return operands[i];
}

CustomKernel register_kernel(KernelDefinition given) {
  check(given);
  const auto definition = std::make_shared<const KernelDefinition>(std::move(given));
  if (!definition->wgsl.empty()) webgpu::check_custom(*definition);
  OpRow row{.name = definition->name,
            .family = "custom",
            .result = "as its shape function says",
            .differentiable = definition->gradient != nullptr,
            .doc = definition->doc.empty() ? "An op of the program's own." : definition->doc,
            .infer = [definition](const Call& call) { return inferred(*definition, call); },
            .no_gradient = "give register_kernel a gradient function",
            .no_kernel = "give register_kernel one for this device",
            .form = graph::KernelForm::routine};
  for (const std::string& input : definition->inputs) row.inputs.push_back({input});
  for (const auto& [name, value] : definition->attributes)
    row.attributes.push_back({.name = name, .default_value = value, .doc = "of the program's own op"});
  if (definition->gradient)
    row.gradient = [definition](const graph::GradientCall& g) { return gradients(*definition, g); };
  const OpRow& entered = graph::register_row(std::move(row));
  if (definition->cpu)
    cpu::calls().add(entered, {.prepare = [definition](const kernel::CallKernel& kernel) {
                       return cpu::prepare_function(
                           kernel,
                           [definition](const kernel::CallKernel& k, std::span<char* const> reads,
                                        std::span<char* const> outs) { run_on_cpu(*definition, k, reads, outs); },
                           false);
                     }});
  if (!definition->wgsl.empty())
    webgpu::calls().add(entered, {.accepts =
                                      [](const Call& call) {
                                        return std::none_of(call.inputs().begin(), call.inputs().end(),
                                                            [](const Tensor& x) { return x.dtype() == DType::f64; });
                                      },
                                  .render =
                                      [definition](const kernel::CallKernel& kernel, const webgpu::Target& target,
                                                   webgpu::Scratch&, webgpu::Rendered& rendered) {
                                        webgpu::render_custom(*definition,
                                                              attributes_of(*definition, kernel.attributes.data()),
                                                              kernel, target, rendered);
                                      }});
  return CustomKernel(definition->name);
}

std::vector<Tensor> CustomKernel::call(const std::vector<Tensor>& inputs, const KernelAttributes& attributes,
                                       Where where) const {
  return op(name_, inputs, attributes, where);
}

std::vector<Tensor> op(std::string_view name, const std::vector<Tensor>& inputs, const KernelAttributes& attributes,
                       Where where) {
  const OpRow& row = graph::op_row(name);
  graph::CaseAttributes values;
  for (const auto& [attribute, value] : attributes) {
    const bool is_flag = graph::attribute_of(row, attribute).type == graph::AttributeType::boolean;
    if (is_flag && value != 0 && value != 1)
      throw UsageError(fmt::format("{}: attribute {} is {}, neither 0 nor 1", row.name, attribute, value));
    values.emplace_back(attribute, is_flag ? graph::AttributeValue(value != 0) : graph::AttributeValue(value));
  }
  return graph::apply(row, inputs, values, where);
}

}  // namespace weft
