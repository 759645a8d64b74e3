// Export: a function is traced, at several extents if these may change, and its graph becomes a model.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <unordered_map>

#include "base/file.hpp"
#include "base/quote.hpp"
#include "graph/trace_scope.hpp"
#include "onnx/exporter.hpp"
#include "onnx/merge.hpp"
#include "onnx/record.hpp"
#include "weft/error.hpp"
#include "weft/onnx.hpp"

namespace weft::onnx {
namespace {

using graph::Kind;
using graph::Node;
using graph::NodeRef;
using Names = std::vector<std::string>;

std::string port_name(const std::vector<std::string>& given, std::size_t i, char letter) {
  return given.empty() ? fmt::format("{}{}", letter, i) : given[i];
}

/// The function at one point.
struct Trace {
  Record record;
  std::vector<Shape> shapes;  // of the results
  std::vector<DType> types;
};

Trace traced(const Function& function, std::span<const Tensor> examples, std::span<const Shape> shapes,
             const SaveOptions& options) {
  Trace trace;
  Record& record = trace.record;
  std::vector<Tensor> arguments;
  std::unordered_map<const Node*, Names> known;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    arguments.emplace_back(graph::make_node({.kind = Kind::input,
                                             .type = examples[i].dtype(),
                                             .shape = shapes[i],
                                             .device = examples[i].device(),
                                             .ints = {static_cast<Extent>(i)}}));
    known[arguments.back().node().get()] = {port_name(options.inputs, i, 'x')};
  }
  std::unordered_map<const graph::Cell*, std::string> parameter_names;
  if (options.module)
    for (const nn::NamedParameter& p : options.module->named_parameters())
      parameter_names[p.variable.cell().get()] = p.name;

  std::vector<Tensor> results;
  std::vector<std::pair<std::shared_ptr<graph::Cell>, NodeRef>> read;
  {
    graph::TraceScope scope;
    results = function(arguments);
    for (const graph::TraceScope::Entry& entry : scope.entries())
      if (entry.stand_in) read.emplace_back(entry.cell, entry.stand_in);
  }
  if (results.empty()) throw UsageError("onnx::save: the function gives no tensors");
  if (!options.outputs.empty() && options.outputs.size() != results.size())
    throw UsageError(fmt::format("onnx::save: {} names for {} outputs", options.outputs.size(), results.size()));
  for (const auto& [cell, stand_in] : read) {
    const auto named = parameter_names.find(cell.get());
    record.begin("a parameter", {});
    known[stand_in.get()] = {
        record.stored(named == parameter_names.end() ? cell->name : named->second, Tensor(graph::value_of(cell)))};
  }
  std::vector<NodeRef> nodes;
  for (const Tensor& result : results) nodes.push_back(result.node());
  const Names made = record_graph(record, std::move(known), nodes);
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string name = port_name(options.outputs, i, 'y');
    record.node("Identity", {&made[i], 1}, {&name, 1});
    trace.shapes.push_back(results[i].shape());
    trace.types.push_back(results[i].dtype());
  }
  return trace;
}

/// The axes that may change: for each input and axis the number of its symbol, or -1.
struct DynamicAxes {
  std::vector<Symbol> symbols;
  std::vector<Extent> examples;  // of the symbols
  std::vector<std::vector<int>> symbol_of;

  Names names() const {
    Names list;
    for (const Symbol& symbol : symbols) list.push_back(symbol.name);
    return list;
  }
  std::vector<Shape> shapes(std::span<const Tensor> inputs, std::span<const Extent> extents) const {
    std::vector<Shape> list;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      list.push_back(inputs[i].shape());
      for (int axis = 0; axis < list[i].rank(); ++axis)
        if (const int k = symbol_of[i][static_cast<std::size_t>(axis)]; k >= 0)
          list[i][axis] = extents[static_cast<std::size_t>(k)];
    }
    return list;
  }
};

DynamicAxes dynamic_axes(std::span<const Tensor> examples, const SaveOptions& options) {
  DynamicAxes axes;
  Names inputs;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    inputs.push_back(port_name(options.inputs, i, 'x'));
    axes.symbol_of.emplace_back(static_cast<std::size_t>(examples[i].rank()), -1);
  }
  for (const auto& [input, named] : options.dynamic_axes) {
    const auto found = std::find(inputs.begin(), inputs.end(), input);
    if (found == inputs.end())
      throw UsageError(fmt::format("onnx::save: dynamic_axes names the input {}, and the inputs are {}", quote(input),
                                   fmt::join(inputs, ", ")));
    const auto i = static_cast<std::size_t>(found - inputs.begin());
    const int rank = examples[i].rank();
    for (const auto& [given, name] : named) {
      if (given < -rank || given >= rank)
        throw UsageError(
            fmt::format("onnx::save: dynamic_axes names axis {} of the input {}, whose example has shape {}", given,
                        quote(input), examples[i].shape().to_string()));
      if (name.empty()) throw UsageError(fmt::format("onnx::save: axis {} of {} has no name", given, quote(input)));
      const int axis = given < 0 ? given + rank : given;
      int& place = axes.symbol_of[i][static_cast<std::size_t>(axis)];
      if (place >= 0)
        throw UsageError(fmt::format("onnx::save: dynamic_axes names axis {} of {} twice", axis, quote(input)));
      const Extent extent = examples[i].shape()[axis];
      const auto same =
          std::find_if(axes.symbols.begin(), axes.symbols.end(), [&](const Symbol& s) { return s.name == name; });
      place = static_cast<int>(same - axes.symbols.begin());
      if (same == axes.symbols.end()) {
        axes.symbols.push_back({name, input, axis});
        axes.examples.push_back(extent);
      } else if (axes.examples[static_cast<std::size_t>(place)] != extent) {
        throw UsageError(fmt::format(
            "onnx::save: the extent {} is {} in {} and {} in {}; equal names are equal extents", quote(name),
            axes.examples[static_cast<std::size_t>(place)], quote(same->input), extent, quote(input)));
      }
    }
  }
  return axes;
}

/// Traces at the points, and writes the model that computes all of them.
std::string model_of(const Function& function, std::span<const Tensor> examples, const SaveOptions& options,
                     const DynamicAxes& axes, TracePoints points) {
  std::vector<Trace> traces;
  const auto trace_at = [&](const std::vector<Extent>& extents) {
    return traced(function, examples, axes.shapes(examples, extents), options);
  };
  for (const std::vector<Extent>& extents : points.at) traces.push_back(trace_at(extents));
  // Far from the others, an algorithm may take more steps.
  if (points.step > 0)
    for (std::size_t k = 0; k < axes.symbols.size(); ++k) {
      std::vector<Extent> far = points.at[0];
      for (const Extent extent : {3 * far[k] + 5, 2 * far[k] + 1}) try {
          far[k] = extent;
          traces.push_back(trace_at(far));
          points.at.push_back(far);
          break;
        } catch (const Error&) {  // longer than the function can take
        }
    }

  GraphWriter writer;
  const auto take = [&](const std::string& name) {
    if (name.empty() || !writer.take(name))
      throw UsageError(fmt::format("onnx::save: the name {} is empty or taken", quote(name)));
  };
  std::vector<std::vector<Shape>> inputs(examples.size()), results(traces[0].shapes.size());
  for (const std::vector<Extent>& extents : points.at) {
    const std::vector<Shape> shapes = axes.shapes(examples, extents);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].push_back(shapes[i]);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = port_name(options.inputs, i, 'x');
    take(name);
    writer.input(name, examples[i].dtype(), declared(inputs[i], points, axes.symbols));
  }
  for (std::size_t i = 0; i < results.size(); ++i) take(port_name(options.outputs, i, 'y'));
  std::vector<Record> records;
  for (Trace& trace : traces) {
    const auto same_rank = [](const Shape& a, const Shape& b) { return a.rank() == b.rank(); };
    if (trace.types != traces[0].types ||
        !std::equal(trace.shapes.begin(), trace.shapes.end(), traces[0].shapes.begin(), same_rank))
      throw UsageError(fmt::format("onnx::save: the function's results have other dtypes or ranks for {} than for {}",
                                   points.to_string(records.size(), axes.names()), points.to_string(0, axes.names())));
    for (std::size_t i = 0; i < results.size(); ++i) results[i].push_back(trace.shapes[i]);
    records.push_back(std::move(trace.record));
  }
  write_records(records, points, axes.symbols, writer);
  for (std::size_t i = 0; i < results.size(); ++i)
    writer.output(port_name(options.outputs, i, 'y'), traces[0].types[i], declared(results[i], points, axes.symbols));
  return writer.model();
}

// Two sizes of a function may be equal at some extents and not at others, and an extent may have a limit. So several bases are
// tried, upwards and downwards. Extents of 1 broadcast and are left out.
std::string dynamic_model_of(const Function& function, std::span<const Tensor> examples, const SaveOptions& options,
                             const DynamicAxes& axes) {
  constexpr Extent kLeast = 2, kDown = 3;  // the least extent, and how far down the points go
  std::vector<TracePoints> tries;
  const auto add = [&](Extent least, Extent shift, Extent step) {
    std::vector<Extent> base = axes.examples;
    for (std::size_t k = 0; k < base.size(); ++k)
      base[k] = std::max(base[k], least) + shift * static_cast<Extent>(k + 1);
    tries.push_back(TracePoints::from(base, step));
  };
  for (const Extent shift : {0, 1, 5}) add(kLeast, shift, 1);
  for (const Extent shift : {0, -1}) add(kLeast + kDown - shift * static_cast<Extent>(axes.examples.size()), shift, -1);
  std::exception_ptr first;
  for (const TracePoints& points : tries) try {
      return model_of(function, examples, options, axes, points);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
    }
  std::rethrow_exception(first);
}

}  // namespace

void save(const std::filesystem::path& path, const Function& function, std::span<const Tensor> examples,
          const SaveOptions& options) {
  if (!options.inputs.empty() && options.inputs.size() != examples.size())
    throw UsageError(fmt::format("onnx::save: {} names for {} inputs", options.inputs.size(), examples.size()));
  const DynamicAxes axes = dynamic_axes(examples, options);
  const std::string model = axes.symbols.empty() ? model_of(function, examples, options, axes, {{{}}, 0, 0})
                                                 : dynamic_model_of(function, examples, options, axes);
  write_file_atomically(path, model);
}

}  // namespace weft::onnx
