#include "weft/grid/description.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/checked.hpp"
#include "grid/layer_rows.hpp"
#include "grid/names.hpp"
#include "weft/grid/number_types.hpp"

namespace weft::grid {
namespace {

constexpr std::string_view kActivationNames[] = {"linear", "relu", "silu", "gelu", "tanh", "sigmoid"};
constexpr std::string_view kCombineNames[] = {"concat", "add", "average", "filter"};
constexpr std::string_view kSoftmaxNames[] = {"standard", "grid",   "hierarchical", "temperature", "gumbel",
                                              "masked",   "sparse", "adaptive",     "mixture",     "entmax"};
constexpr Extent kLayersMax = 1 << 14;

/// The number of layers of a grid; nothing if an extent is below 1 or there are too many.
std::optional<Extent> layer_count(const Description& d) {
  Extent count = 1;
  for (const Extent extent : {d.depth, d.rows, d.columns, d.layers_per_cell}) {
    if (extent < 1 || extent > kLayersMax || count * extent > kLayersMax) return std::nullopt;
    count *= extent;
  }
  return count;
}

}  // namespace

std::string_view name_of(Activation activation) { return kActivationNames[static_cast<int>(activation) + 1]; }
std::string_view name_of(Combine combine) { return kCombineNames[static_cast<int>(combine)]; }
std::string_view name_of(SoftmaxKind kind) { return kSoftmaxNames[static_cast<int>(kind)]; }

LayerType layer_type(std::string_view name) {
  std::vector<std::string_view> names;
  for (int i = 0; i < kLayerTypeCount; ++i) names.push_back(name_of(static_cast<LayerType>(i)));
  return static_cast<LayerType>(position_of("the type of layer", name, names));
}

Activation activation(std::string_view name) {
  return static_cast<Activation>(static_cast<int>(position_of("the activation", name, kActivationNames)) - 1);
}

bool is_fresh(const Layer& layer) {
  return layer.disabled && layer.type == LayerType::dense && layer.inputs == 0 && layer.outputs == 0;
}

std::string to_string(const Coordinate& at) { return fmt::format("{},{},{},{}", at.z, at.y, at.x, at.layer); }

Description::Description(Extent depth, Extent rows, Extent columns, Extent layers_per_cell)
    : depth(depth), rows(rows), columns(columns), layers_per_cell(layers_per_cell) {
  const std::optional<Extent> count = layer_count(*this);
  if (!count)
    throw UsageError(fmt::format(
        "a grid of {} x {} x {} cells with {} layers each: every extent is at least 1, and there are at most {} layers",
        depth, rows, columns, layers_per_cell, kLayersMax));
  Layer fresh;
  fresh.disabled = true;
  layers.assign(static_cast<std::size_t>(*count), fresh);
}

Description Description::chain(std::vector<Layer> layers) {
  Description d(1, 1, 1, std::max<Extent>(1, static_cast<Extent>(layers.size())));
  if (!layers.empty()) d.layers = std::move(layers);
  return d;
}

bool Description::contains(const Coordinate& at) const {
  const auto inside = [](Extent i, Extent n) { return i >= 0 && i < n; };
  return inside(at.z, depth) && inside(at.y, rows) && inside(at.x, columns) && inside(at.layer, layers_per_cell);
}

std::size_t Description::index(const Coordinate& at) const {
  if (!contains(at))
    throw UsageError(fmt::format("{} is outside of the grid of {} x {} x {} cells with {} layers each", to_string(at),
                                 depth, rows, columns, layers_per_cell));
  return static_cast<std::size_t>(((at.z * rows + at.y) * columns + at.x) * layers_per_cell + at.layer);
}

Coordinate Description::coordinate(std::size_t index) const {
  auto i = static_cast<Extent>(index);
  Coordinate at;
  at.layer = i % layers_per_cell, i /= layers_per_cell;
  at.x = i % columns, i /= columns;
  at.y = i % rows, at.z = i / rows;
  return at;
}

Extent parameter_count(const Layer& layer) {
  Extent count = 0;
  for (const ParameterSpec& p : parameters_of(layer)) count += p.shape.numel();
  for (const auto* inside : {&layer.children, &layer.gate})
    for (const Layer& child : *inside)
      if (!child.link) count += parameter_count(child);
  return count;
}

namespace {

/// Collects the mistakes of a description.
class Checker {
 public:
  explicit Checker(const Description& description) : d_(description) {}

  std::vector<Problem> problems() {
    const std::optional<Extent> count = layer_count(d_);
    if (!count) {
      add("", fmt::format(
                  "depth {}, rows {}, columns {} and layers_per_cell {}: each is at least 1, and there are at most {} "
                  "layers",
                  d_.depth, d_.rows, d_.columns, d_.layers_per_cell, kLayersMax));
      return std::move(found_);
    }
    if (static_cast<Extent>(d_.layers.size()) != *count) {
      add("/layers", fmt::format("has {} layers; the grid has {}", d_.layers.size(), *count));
      return std::move(found_);
    }
    for (std::size_t i = 0; i < d_.layers.size(); ++i) {
      const Layer& layer = d_.layers[i];
      check_layer(fmt::format("/layers/{}", i), layer, 0);
      if (layer.link && !d_.contains(*layer.link))
        add(fmt::format("/layers/{}/link", i), to_string(*layer.link) + " is outside of the grid");
    }
    check_circles();
    if (found_.empty()) check_widths();
    return std::move(found_);
  }

 private:
  void add(std::string path, std::string message) { found_.push_back({std::move(path), std::move(message)}); }

  void check_layer(const std::string& path, const Layer& l, int depth) {
    if (depth > kNestingMax) return add(path, fmt::format("is nested deeper than {}", kNestingMax));
    if (depth > 0 && ++inside_ > kLayersMax) {
      if (inside_ == kLayersMax + 1)
        add(path, fmt::format("is one of more than {} layers inside of others", kLayersMax));
      return;
    }
    if (!is_number_type(l.dtype))
      add(path + "/dtype", fmt::format("{} is not a type of parameters", weft::name_of(l.dtype)));
    const std::size_t before = found_.size();
    if (!is_fresh(l)) {
      check_numbers(path, l);
      if (found_.size() == before) check_members(path, l);
      if (found_.size() == before) check_size(path, l);
    }
    const bool holds = l.type == LayerType::parallel || l.type == LayerType::sequential;
    if (holds && l.children.empty()) add(path + "/children", "is empty; give at least one layer");
    if (!holds && !l.children.empty()) add(path + "/children", fmt::format("{} has no children", name_of(l.type)));
    for (std::size_t i = 0; i < l.children.size(); ++i)
      check_child(fmt::format("{}/children/{}", path, i), l.children[i], depth);
    const bool gated = l.type == LayerType::parallel && l.combine == Combine::filter;
    if (gated != !l.gate.empty() || l.gate.size() > 1)
      add(path + "/gate", gated ? "a filter has one gate" : "only parallel layers that combine by filter have a gate");
    for (const Layer& gate : l.gate) {
      check_child(path + "/gate", gate, depth);
      const auto width = row_of(gate.type).output_width;
      if (gated && width && !gate.link && width(gate) != static_cast<Extent>(l.children.size()))
        add(path + "/gate", fmt::format("gives {} scores for {} children", width(gate), l.children.size()));
    }
  }

  void check_child(const std::string& path, const Layer& child, int depth) {
    if (!child.link) return check_layer(path, child, depth + 1);
    if (!d_.contains(*child.link)) add(path + "/link", to_string(*child.link) + " is outside of the grid");
  }

  void check_numbers(const std::string& path, const Layer& l) {
    for (const LayerField& field : layer_fields()) {
      if (!field.is_used_by(l.type)) continue;
      double value = 0;
      if (const auto* extent = std::get_if<Extent Layer::*>(&field.member)) value = static_cast<double>(l.**extent);
      if (const auto* number = std::get_if<double Layer::*>(&field.member)) value = l.**number;
      if (std::holds_alternative<bool Layer::*>(field.member) || (value >= field.least && value <= field.most))
        continue;
      add(fmt::format("{}/{}", path, field.name),
          fmt::format("is {}; for {} it is in [{}, {}]", value, name_of(l.type), field.least, field.most));
    }
  }

  void check_members(const std::string& path, const Layer& l) {
    if (l.type == LayerType::attention) {
      if (l.inputs % l.heads != 0)
        add(path + "/heads", fmt::format("{} heads do not divide {} inputs", l.heads, l.inputs));
      else if (l.rope_base > 0 && l.inputs / l.heads % 2 != 0)
        add(path + "/rope_base", fmt::format("rotates pairs, but a head has {} elements", l.inputs / l.heads));
      if (l.key_heads > 0 && l.heads % l.key_heads != 0)
        add(path + "/key_heads", fmt::format("{} key heads do not divide {} heads", l.key_heads, l.heads));
    }
    if (l.type != LayerType::softmax) return;
    if ((l.softmax == SoftmaxKind::mixture || l.softmax == SoftmaxKind::grid) && l.rows > 0 && l.columns == 0)
      add(path + "/columns", fmt::format("is 0; give the columns of the {} rows", l.rows));
    if (l.softmax == SoftmaxKind::hierarchical &&
        std::any_of(l.levels.begin(), l.levels.end(), [](Extent n) { return n < 1 || n > kExtentMax; }))
      add(path + "/levels", "each is at least 1");
    if (l.softmax == SoftmaxKind::masked && std::find(l.mask.begin(), l.mask.end(), true) == l.mask.end())
      add(path + "/mask", "is true nowhere, so the softmax has no elements");
  }

  /// That the parameters can be counted, and so made.
  void check_size(const std::string& path, const Layer& l) {
    const auto& shapes = parameters_of(l);
    for (const ParameterSpec& p : shapes) {
      Extent count = 1;
      for (const Extent extent : p.shape) {
        const auto product = try_multiply(count, extent);
        if (!product || *product > kExtentMax)
          return add(path, fmt::format("its {} {} has more than {} elements", p.name, p.shape.to_string(), kExtentMax));
        count = *product;
      }
      total_ += static_cast<double>(count);
    }
    if (total_ > static_cast<double>(kExtentMax)) {
      add(path, fmt::format("all parameters together are more than {}", kExtentMax));
      total_ = 0;
    }
  }

  // ---- Links -------------------------------------------------------------------------------------------------------------

  void collect_links(const Layer& l, std::vector<std::size_t>& targets) const {
    for (const auto* inside : {&l.children, &l.gate})
      for (const Layer& child : *inside)
        if (!child.link)
          collect_links(child, targets);
        else if (d_.contains(*child.link))
          targets.push_back(d_.index(*child.link));
  }

  /// A layer whose children run layers of the grid must not run itself again by way of them.
  void check_circles() {
    const std::size_t n = d_.layers.size();
    std::vector<std::vector<std::size_t>> targets(n);
    for (std::size_t i = 0; i < n; ++i) collect_links(d_.layers[i], targets[i]);
    enum : std::uint8_t { unseen, open, done };
    std::vector<std::uint8_t> state(n, unseen);
    for (std::size_t start = 0; start < n; ++start) {
      std::vector<std::pair<std::size_t, std::size_t>> path{{start, 0}};
      if (state[start] != unseen) continue;
      state[start] = open;
      while (!path.empty()) {
        auto& [at, next] = path.back();
        if (next == targets[at].size()) {
          state[at] = done;
          path.pop_back();
          continue;
        }
        const std::size_t to = targets[at][next++];
        if (state[to] == open)
          return add(fmt::format("/layers/{}", at),
                     fmt::format("runs layer {} by a link, which runs this one", to_string(d_.coordinate(to))));
        if (state[to] == unseen) {
          state[to] = open;
          path.emplace_back(to, 0);
        }
      }
    }
  }

  // ---- Widths ------------------------------------------------------------------------------------------------------------

  using Width = std::optional<Extent>;

  /// The width of the result, if it is known; reports neighbours that cannot fit.
  Width pass(const std::string& path, const Layer& l, Width given) {
    if (l.disabled) return given;
    const LayerRow& row = row_of(l.type);
    // The axes behind the first may be joined, so the width may be a multiple.
    if (row.input_width && given && row.input_width(l) % *given != 0)
      add(path + "/inputs", fmt::format("is {}, but the layer before gives {}", row.input_width(l), *given));
    switch (l.type) {
      case LayerType::residual: return given;
      case LayerType::softmax: return l.softmax == SoftmaxKind::mixture ? Width() : given;
      case LayerType::sequential: return pass_children(path, l, given);
      case LayerType::parallel: return pass_parallel(path, l, given);
      default: return row.output_width ? Width(row.output_width(l)) : Width();
    }
  }

  Width pass_children(const std::string& path, const Layer& l, Width width) {
    for (std::size_t i = 0; i < l.children.size(); ++i)
      width = l.children[i].link ? Width() : pass(fmt::format("{}/children/{}", path, i), l.children[i], width);
    return width;
  }

  Width pass_parallel(const std::string& path, const Layer& l, Width given) {
    Width all = l.combine == Combine::concat ? Width(0) : Width();
    bool known = true;
    for (std::size_t i = 0; i < l.children.size(); ++i) {
      const Layer& child = l.children[i];
      const std::string at = fmt::format("{}/children/{}", path, i);
      const Width width = child.link ? Width() : pass(at, child, given);
      if (!width)
        known = false;
      else if (l.combine == Combine::concat)
        all = *all + *width;
      else if (!all)
        all = width;
      else if (*all != *width)
        add(at, fmt::format("gives {}, but an earlier child gives {}; {} takes equal ones", *width, *all,
                            name_of(l.combine)));
    }
    return known && (l.combine != Combine::concat || l.axis == -1) ? all : Width();
  }

  void check_widths() {
    std::vector<Width> widths;
    Width before;
    for (std::size_t i = 0; i < d_.layers.size(); ++i) {
      const Layer& l = d_.layers[i];
      Width given = before;
      if (l.link) given = d_.index(*l.link) < i ? widths[d_.index(*l.link)] : Width();
      before = pass(fmt::format("/layers/{}", i), l, given);
      widths.push_back(before);
    }
  }

  const Description& d_;
  std::vector<Problem> found_;
  double total_ = 0;   // parameters
  Extent inside_ = 0;  // layers inside of others
};

}  // namespace

std::vector<Problem> problems_of(const Description& description) { return Checker(description).problems(); }

void check(const Description& description) { refuse(problems_of(description)); }

void refuse(const std::vector<Problem>& problems) {
  if (problems.empty()) return;
  constexpr std::size_t kListed = 50;
  std::string text;
  for (std::size_t i = 0; i < std::min(problems.size(), kListed); ++i)
    text += fmt::format("\n  {}: {}", problems[i].path.empty() ? "/" : problems[i].path, problems[i].message);
  if (problems.size() > kListed) text += fmt::format("\n  and {} more", problems.size() - kListed);
  throw UsageError(fmt::format("the description of the network has {} mistake{}{}", problems.size(),
                               problems.size() == 1 ? "" : "s", text));
}

}  // namespace weft::grid
