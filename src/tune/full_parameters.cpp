// All weights of a model.
#include <fmt/format.h>

#include <algorithm>

#include "base/processors.hpp"
#include "io/quantised_folder.hpp"
#include "llm/constant_values.hpp"
#include "llm/convert.hpp"
#include "llm/merge_folder.hpp"
#include "tune/parameters.hpp"
#include "tune/steps.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"
#include "weft/optim/table.hpp"

namespace weft::tune {
namespace {

using llm::TensorDesc;

Shape shape_of(const TensorDesc& tensor) {
  Shape shape;
  for (const llm::Dim& extent : tensor.shape) shape.push_back(extent.value);
  return shape;
}

class FullParameters : public Parameters {
 public:
  FullParameters(const llm::detail::Engine& engine, const TunerOptions& options)
      : graph_(engine.graph()), path_(engine.path()) {
    require_room(engine, options);
    const auto& weights = engine.stages()[0]->weights();
    for (const TensorDesc& tensor : graph_.tensors) {
      if (tensor.storage != llm::TensorStorage::constant) continue;
      const Shape shape = shape_of(tensor);
      // Added to zero, so that the value is memory of its own.
      const Tensor zero = zeros(shape, DType::f32, engine.device());
      variables_.emplace_back((engine.is_planned() ? zero : plain(weights.at(tensor.name), shape) + zero).eval(),
                              tensor.name, true);
    }
  }

  const llm::ModelGraph& graph() const override { return graph_; }
  std::vector<Variable> variables() const override { return variables_; }
  std::map<std::string, Tensor> values() const override {
    std::map<std::string, Tensor> values;
    for (const Variable& variable : variables_) values[variable.name()] = variable.value();
    return values;
  }
  std::vector<std::string> products() const override { return {}; }

  void save(const std::filesystem::path& path) const override {
    const io::TensorSource source = io::with_quantised_layers(io::TensorSource::open(path_));
    const io::TensorSource trained =
        llm::with_values(source, graph_, [this](const std::string& constant, Extent first, Extent count) {
          const auto found = std::find_if(variables_.begin(), variables_.end(),
                                          [&](const Variable& variable) { return variable.name() == constant; });
          const Tensor value = found->value();
          return std::optional(
              (value.rank() == 0 || count == value.dim(0) ? value : narrow(value, 0, first, count)).to_vector<float>());
        });
    if (source.gguf())
      llm::convert_to_folder(trained, path, {.mmproj = "none"});
    else
      llm::write_folder(trained, path, {});
  }

 private:
  /// A weight in f32, without the rows of zeros that packed experts end with.
  static Tensor plain(const Tensor& weight, const Shape& shape) {
    const Tensor all = cast(weight, DType::f32);
    return all.shape() == shape ? all : narrow(all, 1, 0, shape[1]);
  }
  /// Beside the model that is there: what trains, the optimiser's state, and the sum of gradients.
  void require_room(const llm::detail::Engine& engine, const TunerOptions& options) const {
    if (engine.is_planned() || engine.device().kind != Device::Kind::cpu) return;
    const auto numbers = static_cast<std::uint64_t>(llm::constant_count(graph_));
    const std::uint64_t needed = trained_bytes(options, constants_of(graph_)), room = free_memory();
    if (needed > room)
      throw UsageError(
          fmt::format("tune: {} weights in f32 with the state of {} take {:.1f} MB, and there is room for {:.1f} MB; "
                      "train an adapter, or "
                      "take a smaller model",
                      numbers, optim::rule_named(options.optimizer).title, static_cast<double>(needed) / 1e6,
                      static_cast<double>(room) / 1e6));
  }

  const llm::ModelGraph graph_;
  const std::filesystem::path path_;
  std::vector<Variable> variables_;
};

}  // namespace

std::vector<std::pair<std::string, Shape>> constants_of(const llm::ModelGraph& graph) {
  std::vector<std::pair<std::string, Shape>> constants;
  for (const TensorDesc& tensor : graph.tensors)
    if (tensor.storage == llm::TensorStorage::constant) constants.emplace_back(tensor.name, shape_of(tensor));
  return constants;
}

std::unique_ptr<Parameters> full_parameters(const llm::detail::Engine& engine, const TunerOptions& options) {
  return std::make_unique<FullParameters>(engine, options);
}

}  // namespace weft::tune
