// Export: a function is traced, at several extents if these may change, and its graph becomes a model.
#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
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

constexpr Extent kLeast = 2;  // an extent of 1 broadcasts

/// Far from the others, an algorithm may take more steps; where the first is too far, the second may not be.
constexpr Extent kFarTimes[] = {3, 2};
Extent far_extent(Extent extent, Extent times) { return times * extent + (times == 3 ? 5 : 1); }

/// The function at several points.
class Traces {
 public:
  Traces(const Function& function, std::span<const Tensor> examples, const SaveOptions& options,
         const DynamicAxes& axes, const TracePoints& points)
      : function_(function), examples_(examples), options_(options), axes_(axes), points_(points) {
    for (const TracePoints::Point& point : points.at()) take(traced_at(point));
    if (!points.may_change()) return;
    add_far_points();
    while (find_quotients(records_, points_)) add_points_for_quotients();
  }

  const TracePoints& points() const { return points_; }
  std::span<const Record> records() const { return records_; }
  const std::vector<DType>& types() const { return types_; }
  std::span<const Shape> shapes(std::size_t result) const { return shapes_[result]; }  // at the points
  std::size_t results() const { return types_.size(); }

 private:
  Trace traced_at(const TracePoints::Point& point) const {
    return traced(function_, examples_, axes_.shapes(examples_, point), options_);
  }

  void take(Trace trace) {
    if (records_.empty()) {
      types_ = trace.types;
      shapes_.resize(types_.size());
    }
    bool same = trace.types == types_;
    for (std::size_t i = 0; same && !records_.empty() && i < types_.size(); ++i)
      same = trace.shapes[i].rank() == shapes_[i][0].rank();
    if (!same)
      throw UsageError(fmt::format("onnx::save: the function's results have other dtypes or ranks for {} than for {}",
                                   points_.to_string(records_.size(), axes_.names()),
                                   points_.to_string(0, axes_.names())));
    for (std::size_t i = 0; i < types_.size(); ++i) shapes_[i].push_back(trace.shapes[i]);
    records_.push_back(std::move(trace.record));
  }

  // A trace at the point, if the function takes such extents.
  std::optional<Trace> trace_if_taken(const TracePoints::Point& point) const {
    try {
      return traced_at(point);
    } catch (const Error&) {
      return {};
    }
  }

  void add_far_points() {
    if (points_.step() > 0)
      for (std::size_t k = 0; k < axes_.symbols.size(); ++k)
        for (const Extent times : kFarTimes) {
          TracePoints::Point far = points_.at()[0];
          far[k] = far_extent(far[k], times);
          std::optional<Trace> trace = trace_if_taken(far);
          if (!trace) continue;
          points_.add(far);
          take(std::move(*trace));
          break;
        }
  }

  // Points that tell the quotients apart, and some that confirm what they tell. Two sizes that are equal by chance make fewer
  // steps of the record, so such points are passed over.
  void add_points_for_quotients() {
    constexpr std::size_t kMostPassed = 64;
    constexpr std::size_t kConfirming = 4;
    const std::vector<TracePoints::Point> candidates = points_.candidates();
    std::vector<TracePoints::Point> passed;
    const auto add = [&](const TracePoints::Point& point) {
      std::optional<Trace> trace = trace_if_taken(point);
      if (!trace || !has_same_steps(trace->record, records_[0])) return false;
      points_.add(point);
      take(std::move(*trace));
      return true;
    };
    for (const TracePoints::Point& point : candidates) {
      if (passed.size() == kMostPassed) break;
      if (points_.tells_more(point) && !add(point)) passed.push_back(point);
    }
    for (const TracePoints::Point& point : passed)
      if (points_.tells_more(point)) {
        points_.add(point);
        take(traced_at(point));  // gives an error, or records that differ
      }
    std::size_t confirming = 0;
    for (std::size_t i = 0; i < candidates.size() && confirming < kConfirming; i += candidates.size() / 16) {
      const bool is_known = std::find(points_.at().begin(), points_.at().end(), candidates[i]) != points_.at().end();
      if (!is_known && add(candidates[i])) ++confirming;
    }
  }

  const Function& function_;
  std::span<const Tensor> examples_;
  const SaveOptions& options_;
  const DynamicAxes& axes_;
  TracePoints points_;
  std::vector<Record> records_;
  std::vector<std::vector<Shape>> shapes_;
  std::vector<DType> types_;
};

/// Traces at the points, and writes the model that computes all of them.
std::string model_of(const Function& function, std::span<const Tensor> examples, const SaveOptions& options,
                     const DynamicAxes& axes, const TracePoints& first_points) {
  const Traces traces(function, examples, options, axes, first_points);
  const TracePoints& points = traces.points();
  GraphWriter writer;
  const auto take = [&](const std::string& name) {
    if (name.empty() || !writer.take(name))
      throw UsageError(fmt::format("onnx::save: the name {} is empty or taken", quote(name)));
  };
  std::vector<std::vector<Shape>> inputs(examples.size());
  for (const TracePoints::Point& point : points.at()) {
    const std::vector<Shape> shapes = axes.shapes(examples, point);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].push_back(shapes[i]);
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = port_name(options.inputs, i, 'x');
    take(name);
    writer.input(name, examples[i].dtype(), declared(inputs[i], points, axes.symbols));
  }
  for (std::size_t i = 0; i < traces.results(); ++i) take(port_name(options.outputs, i, 'y'));
  write_records(traces.records(), points, axes.symbols, writer);
  for (std::size_t i = 0; i < traces.results(); ++i)
    writer.output(port_name(options.outputs, i, 'y'), traces.types()[i],
                  declared(traces.shapes(i), points, axes.symbols));
  return writer.model();
}

/// From the extents, or from `least` where they are less, moved by another multiple of `shift` for each symbol.
TracePoints points_from(std::vector<Extent> base, Extent least, Extent shift, Extent step) {
  for (std::size_t k = 0; k < base.size(); ++k) base[k] = std::max(base[k], least) + shift * static_cast<Extent>(k + 1);
  return {base, step};
}

/// The sizes that the function writes at the examples.
std::set<Extent> sizes_of(const Function& function, std::span<const Tensor> examples, const SaveOptions& options,
                          const DynamicAxes& axes) {
  std::set<Extent> sizes;
  const Trace trace = traced(function, examples, axes.shapes(examples, axes.examples), options);
  for (const RecordStep& step : trace.record.steps()) {
    sizes.insert(step.integers.begin(), step.integers.end());
    if (step.kind == RecordStep::Kind::stored) sizes.insert(step.tensor.shape().begin(), step.tensor.shape().end());
  }
  return sizes;
}

/// Upwards from several bases, the nearest ones at which no extent is one of the sizes.
std::vector<TracePoints> points_apart_from(const std::set<Extent>& sizes, const std::vector<Extent>& examples) {
  constexpr std::size_t kTries = 3;
  constexpr Extent kFarthest = 1000;
  std::vector<TracePoints> tries;
  for (Extent shift = 2; shift < kFarthest && tries.size() < kTries; ++shift) {
    TracePoints points = points_from(examples, kLeast, shift, 1);
    std::vector<TracePoints::Point> all = points.at();
    for (const Extent times : kFarTimes) {
      TracePoints::Point far = points.at()[0];
      for (Extent& extent : far) extent = far_extent(extent, times);
      all.push_back(far);
    }
    const bool is_apart = std::none_of(all.begin(), all.end(), [&](const TracePoints::Point& point) {
      return std::any_of(point.begin(), point.end(), [&](Extent extent) { return sizes.contains(extent); });
    });
    if (!is_apart) continue;
    tries.push_back(std::move(points));
    shift *= 2;  // what is equal by a sum or a product is so at neighbouring bases too
  }
  return tries;
}

// Two sizes of a function may be equal at some extents and not at others, and an extent may have a limit. So several bases are
// tried, upwards and downwards, and at last some that the function's sizes at the examples do not reach.
std::string dynamic_model_of(const Function& function, std::span<const Tensor> examples, const SaveOptions& options,
                             const DynamicAxes& axes) {
  constexpr Extent kDown = 3;  // how far down the points go
  std::exception_ptr first;
  const auto model_at = [&](const TracePoints& points) -> std::optional<std::string> {
    try {
      return model_of(function, examples, options, axes, points);
    } catch (const Error&) {
      if (!first) first = std::current_exception();
      return {};
    }
  };
  for (const Extent shift : {0, 1, 5})
    if (auto model = model_at(points_from(axes.examples, kLeast, shift, 1))) return *model;
  for (const Extent shift : {0, -1}) {
    const Extent least = kLeast + kDown - shift * static_cast<Extent>(axes.examples.size());
    if (auto model = model_at(points_from(axes.examples, least, shift, -1))) return *model;
  }
  std::vector<TracePoints> tries;
  try {
    tries = points_apart_from(sizes_of(function, examples, options, axes), axes.examples);
  } catch (const Error&) {  // the examples themselves cannot be traced, which `first` tells
  }
  for (const TracePoints& points : tries)
    if (auto model = model_at(points)) return *model;
  std::rethrow_exception(first);
}

}  // namespace

void save(const std::filesystem::path& path, const Function& function, std::span<const Tensor> examples,
          const SaveOptions& options) {
  if (!options.inputs.empty() && options.inputs.size() != examples.size())
    throw UsageError(fmt::format("onnx::save: {} names for {} inputs", options.inputs.size(), examples.size()));
  const DynamicAxes axes = dynamic_axes(examples, options);
  const std::string model = axes.symbols.empty() ? model_of(function, examples, options, axes, {})
                                                 : dynamic_model_of(function, examples, options, axes);
  write_file_atomically(path, model);
}

}  // namespace weft::onnx
