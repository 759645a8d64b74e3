// The low-rank matrices beside products, and with DoRA the lengths of the rows of the changed matrices.
#include "tune/parameters.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/philox.hpp"
#include "base/quote.hpp"
#include "llm/adapter_contents.hpp"
#include "llm/adapter_experts.hpp"
#include "llm/adapter_file.hpp"
#include "llm/adapter_modules.hpp"
#include "llm/engine.hpp"
#include "llm/magnitudes.hpp"
#include "tune/saved_tensors.hpp"
#include "weft/error.hpp"
#include "weft/ops.hpp"

namespace weft::tune {
namespace {

using llm::LowRank;
using llm::ModelGraph;
using llm::OpNode;
using llm::detail::on_device;

/// A product, or products of experts, that can get an adapter.
struct Choice {
  std::string id;
  std::vector<std::string> names;
  bool by_default = false;
};

/// The names by which a product can be chosen: "q" of the node layer0_q, "q_proj" of its tensor.
std::vector<std::string> names_of(const std::string& node, const std::string& module) {
  const std::size_t line = node.starts_with("layer") ? node.find('_') : std::string::npos;
  return {line == std::string::npos ? node : node.substr(line + 1), module.substr(module.rfind('.') + 1)};
}

/// In the order of the graph.
std::vector<Choice> choices_of(const ModelGraph& graph) {
  std::map<std::string, std::string> modules;
  for (const auto& [module, target] : llm::module_targets(graph)) modules.emplace(target.node, module);
  std::vector<Choice> choices;
  for (const OpNode& node : graph.nodes) {
    if (node.op == llm::OpType::experts && node.integer("plain") == 0) {
      const auto add = [&](std::string id, std::string_view parameter) {
        choices.push_back({std::move(id), {"experts", fmt::format("experts.{}", parameter)}});
      };
      add(llm::changed_gate_ups(node.id), llm::kGateUp);
      add(llm::changed_downs(node.id), llm::kDown);
    }
    if (const auto found = modules.find(node.id); found != modules.end())
      choices.push_back({node.id, names_of(node.id, found->second), node.layer >= 0});
  }
  return choices;
}

/// The products that get an adapter, in the order of the graph. UsageError for a target that is none.
std::vector<std::string> chosen_products(const ModelGraph& graph, const std::vector<std::string>& targets) {
  std::set<std::string> unused(targets.begin(), targets.end()), known;
  std::vector<std::string> products;
  for (const Choice& choice : choices_of(graph)) {
    bool is_chosen = targets.empty() && choice.by_default;
    for (const std::string& name : choice.names) {
      known.insert(name);
      if (std::find(targets.begin(), targets.end(), name) == targets.end()) continue;
      is_chosen = true;
      unused.erase(name);
    }
    if (is_chosen) products.push_back(choice.id);
  }
  if (!unused.empty())
    throw UsageError(fmt::format("tune: no product of the model is called {}; it has {}", quote(*unused.begin(), 60),
                                 fmt::join(known, ", ")));
  if (products.empty()) throw UsageError("tune: the layers of this model have no products that an adapter can change");
  return products;
}

/// Uniform in +-1/sqrt(in), as PEFT draws A; B begins at zero, so the model is unchanged at first.
std::vector<float> drawn(Extent rank, Extent in, std::uint64_t seed, std::uint32_t product) {
  std::vector<float> values(static_cast<std::size_t>(rank * in));
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  const philox::Key key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
  for (std::size_t i = 0; i < values.size(); i += 4) {
    const philox::Block words = philox::block(
        key, {static_cast<std::uint32_t>(i), product, 2, static_cast<std::uint32_t>(philox::Use::parameters)});
    for (std::size_t j = i; j < std::min(values.size(), i + 4); ++j)
      values[j] = static_cast<float>((2.0 * static_cast<double>(philox::to_unit_float(words[j - i])) - 1) * bound);
  }
  return values;
}

class AdapterParameters : public Parameters {
 public:
  AdapterParameters(const llm::detail::Engine& engine, const TunerOptions& options);

  const ModelGraph& graph() const override { return graph_; }  // with the adapter
  std::vector<Variable> variables() const override;
  std::map<std::string, Tensor> values() const override;
  std::vector<std::string> products() const override;
  void save(const std::filesystem::path& path) const override;

 private:
  /// A product with an adapter.
  struct Pair {
    std::string node;
    Extent rank, in, out, experts;
    double scale;
    Variable a, b;
    Variable magnitude;  // undefined without DoRA; then also what the lengths of rows are made of:
    Tensor weight, squares;
  };
  std::vector<LowRank> begin_anew(const TunerOptions& options) const;
  void add(const LowRank& change, const llm::detail::Engine& engine, const TunerOptions& options);

  const ModelGraph plain_;
  ModelGraph graph_;
  std::optional<SavedTensors> saved_;
  const double dropout_;
  std::vector<Pair> pairs_;
};

std::vector<LowRank> AdapterParameters::begin_anew(const TunerOptions& options) const {
  std::vector<LowRank> changes;
  for (const std::string& id : chosen_products(plain_, options.targets)) {
    ModelGraph changed = plain_;  // which knows the shapes
    llm::add_low_rank(changed, id, options.rank);
    const auto &a = changed.at(llm::low_rank_a(id)).shape, &b = changed.at(llm::low_rank_b(id)).shape;
    LowRank change{id, options.rank, a.back().value, b[b.size() - 2].value, {}, {}};
    if (a.size() > 2) change.experts = a[0].value;
    const Extent all = std::max<Extent>(change.experts, 1) * change.rank;
    change.a = drawn(all, change.in, options.seed, static_cast<std::uint32_t>(changes.size()));
    change.b.assign(static_cast<std::size_t>(change.out * all), 0.0F);
    change.scale = options.alpha / static_cast<double>(options.rank);
    changes.push_back(std::move(change));
  }
  return changes;
}

AdapterParameters::AdapterParameters(const llm::detail::Engine& engine, const TunerOptions& options)
    : plain_(engine.graph()), dropout_(options.dropout) {
  const llm::AdapterContents from = options.from.empty() ? llm::AdapterContents() : llm::read_contents(options.from, 1);
  if (!from.tables.empty())
    throw UsageError(
        fmt::format("{}: the adapter has low-rank matrices of a table of tokens, which do not train; merge it "
                    "into its model (weft convert --adapter), and go on from that",
                    options.from.string()));
  const std::vector<LowRank> changes =
      options.from.empty() ? begin_anew(options) : llm::read_adapter(options.from, 1, plain_);
  graph_ = plain_;
  saved_.emplace(engine, graph_, options, from);
  if (changes.empty()) throw UsageError(fmt::format("{}: the adapter changes no product", options.from.string()));
  for (const LowRank& change : changes) {
    const auto product = std::find_if(graph_.nodes.begin(), graph_.nodes.end(),
                                      [&](const OpNode& node) { return node.id == change.node; });
    if (product != graph_.nodes.end() && product->inputs[1].ends_with(".saved"))
      throw UsageError(
          fmt::format("tune: {} would train as a whole and by low-rank matrices; choose one", change.node));
    if (change.scale == 0)
      throw UsageError(fmt::format("{}: the changes of {} are multiplied by 0, so they cannot train",
                                   options.from.string(), change.node));
    add(change, engine, options);
  }
  graph_.validate();
}

void AdapterParameters::add(const LowRank& change, const llm::detail::Engine& engine, const TunerOptions& options) {
  const Device device = engine.device();
  const bool has_magnitude = options.from.empty() ? options.dora : !change.magnitude.empty();
  if (change.experts > 0 && (options.dora || dropout_ > 0))
    throw UsageError(
        "tune: adapters of experts have neither magnitudes (dora) nor dropout; leave these out, or the experts");
  llm::add_low_rank(graph_, change.node, change.rank, has_magnitude);
  const std::string a = llm::low_rank_a(change.node), b = llm::low_rank_b(change.node);
  const auto shape = [&](Extent rows, Extent columns) {
    return change.experts > 0 ? Shape{change.experts, rows, columns} : Shape{rows, columns};
  };
  Pair& pair = pairs_.emplace_back(Pair{change.node,
                                        change.rank,
                                        change.in,
                                        change.out,
                                        change.experts,
                                        change.scale,
                                        Variable(on_device(change.a, shape(change.rank, change.in), device), a, true),
                                        Variable(on_device(change.b, shape(change.out, change.rank), device), b, true),
                                        {},
                                        {},
                                        {}});
  if (!has_magnitude) return;
  const auto product = std::find_if(plain_.nodes.begin(), plain_.nodes.end(),
                                    [&](const OpNode& node) { return node.id == change.node; });
  pair.weight = engine.stages()[0]->weights().at(product->inputs[1]);
  pair.squares =
      engine.is_planned() ? ones({change.out}, DType::f32, device).eval() : llm::row_squares(pair.weight).eval();
  const Tensor lengths = change.magnitude.empty() ? elementwise("sqrt", {pair.squares}).eval()
                                                  : on_device(change.magnitude, {change.out}, device);
  pair.magnitude = Variable(lengths, llm::low_rank_gain(change.node), true);
}

std::vector<Variable> AdapterParameters::variables() const {
  std::vector<Variable> all;
  for (const Pair& pair : pairs_) {
    all.insert(all.end(), {pair.a, pair.b});
    if (pair.magnitude.defined()) all.push_back(pair.magnitude);
  }
  const std::vector<Variable> saved = saved_->variables();
  all.insert(all.end(), saved.begin(), saved.end());
  return all;
}

std::map<std::string, Tensor> AdapterParameters::values() const {
  std::map<std::string, Tensor> values = saved_->values();
  for (const Pair& pair : pairs_) {
    values[llm::low_rank_a(pair.node)] = pair.a.value();
    Tensor& b = values[llm::low_rank_b(pair.node)];
    b = pair.b.value() * pair.scale;
    if (!pair.magnitude.defined()) continue;
    const Tensor gain = pair.magnitude.value() /
                        llm::row_lengths(pair.weight, pair.squares, pair.a.value(), pair.b.value(), pair.scale);
    values[llm::low_rank_gain(pair.node)] = gain;
    b = b * unsqueeze(gain, 1);
  }
  return values;
}

std::vector<std::string> AdapterParameters::products() const {
  std::vector<std::string> ids;
  for (const Pair& pair : pairs_) ids.push_back(pair.node);
  return ids;
}

void AdapterParameters::save(const std::filesystem::path& path) const {
  std::vector<LowRank> all;
  for (const Pair& pair : pairs_) {
    all.push_back({pair.node, pair.rank, pair.in, pair.out, pair.a.value().to_vector<float>(),
                   pair.b.value().to_vector<float>(), pair.scale});
    all.back().experts = pair.experts;
    if (pair.magnitude.defined()) all.back().magnitude = pair.magnitude.value().to_vector<float>();
  }
  llm::write_adapter(path, all, plain_, {plain_.config.source, dropout_, saved_->to_write()});
}

}  // namespace

std::unique_ptr<Parameters> adapter_parameters(const llm::detail::Engine& engine, const TunerOptions& options) {
  return std::make_unique<AdapterParameters>(engine, options);
}

std::vector<nn::NamedVariable> Parameters::named() const {
  std::vector<nn::NamedVariable> all;
  for (const Variable& variable : variables()) all.push_back({variable.name(), variable});
  return all;
}

std::int64_t Parameters::count() const {
  std::int64_t count = 0;
  for (const Variable& variable : variables()) count += variable.numel();
  return count;
}

}  // namespace weft::tune
