// Einsum: products of tensors whose axes have names.
#include "graph/ops/einsum.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>

#include "base/quote.hpp"
#include "graph/describe.hpp"
#include "weft/ops.hpp"
#include "weft/ops/contraction.hpp"

namespace weft {
namespace graph {
namespace {

// A tensor whose axes have names.
struct Named {
  Tensor x;
  Labels labels;
  bool has(Label label) const { return std::find(labels.begin(), labels.end(), label) != labels.end(); }
  int axis(Label label) const {
    return static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  }
};

Extent extent_of(const std::map<Label, Extent>& extents, const Labels& labels) {
  Extent n = 1;
  for (Label label : labels) n *= extents.at(label);
  return n;
}

// The axes in this order.
Tensor ordered(const Named& n, const Labels& order) {
  Axes axes;
  for (Label label : order) axes.push_back(n.axis(label));
  return weft::permute(n.x, axes);
}

// An axis that is named twice is a diagonal: every (n + 1)-th element of the two axes joined to one.
Named without_repeats(Named n) {
  for (std::size_t i = 0; i < n.labels.size(); ++i)
    for (std::size_t j = i + 1; j < n.labels.size(); ++j) {
      if (n.labels[i] != n.labels[j]) continue;
      const Extent extent = n.x.dim(static_cast<int>(i));
      Axes order;
      for (int a = 0; a < n.x.rank(); ++a)
        if (a != static_cast<int>(i) && a != static_cast<int>(j)) order.push_back(a);
      order.push_back(static_cast<int>(i));
      order.push_back(static_cast<int>(j));
      n.x = weft::slice(weft::flatten(weft::permute(n.x, order), -2, -1), -1, 0, kEnd, extent + 1);
      const Label label = n.labels[i];
      n.labels.erase(n.labels.begin() + static_cast<std::ptrdiff_t>(j));
      n.labels.erase(n.labels.begin() + static_cast<std::ptrdiff_t>(i));
      n.labels.push_back(label);
      return without_repeats(std::move(n));
    }
  return n;
}

Named summed_out(const Named& n, const Labels& kept) {
  Axes axes;
  Named result;
  for (std::size_t i = 0; i < n.labels.size(); ++i) {
    if (std::find(kept.begin(), kept.end(), n.labels[i]) == kept.end())
      axes.push_back(static_cast<int>(i));
    else
      result.labels.push_back(n.labels[i]);
  }
  result.x = axes.empty() ? n.x : weft::sum(n.x, axes);
  return result;
}

// One product: labels that both have and that are kept are its batch; labels that are not kept are summed.
Named multiplied(const Named& a, const Named& b, const Labels& kept, const std::map<Label, Extent>& extents,
                 Where where) {
  Labels batch, summed, only_a, only_b;
  for (Label label : a.labels) {
    const bool stays = std::find(kept.begin(), kept.end(), label) != kept.end();
    (!b.has(label) ? only_a : stays ? batch : summed).push_back(label);
  }
  for (Label label : b.labels)
    if (!a.has(label)) only_b.push_back(label);
  const auto joined = [](std::initializer_list<Labels> parts) {
    Labels all;
    for (const Labels& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const Extent n = extent_of(extents, batch), k = extent_of(extents, summed), rows = extent_of(extents, only_a),
               columns = extent_of(extents, only_b);
  const Tensor left = weft::reshape(ordered(a, joined({batch, only_a, summed})), {n, rows, k});
  const Tensor right = weft::reshape(ordered(b, joined({batch, summed, only_b})), {n, k, columns});
  const Tensor product = summed.empty() ? weft::reshape(left, {n, rows, 1}) * weft::reshape(right, {n, 1, columns})
                                        : weft::matmul(left, right, where);
  Named result{{}, joined({batch, only_a, only_b})};
  Shape shape;
  for (Label label : result.labels) shape.push_back(extents.at(label));
  result.x = weft::reshape(product, shape);
  return result;
}

/// The cheapest order of products of a few operands: for every set of them, the best way to split it in two.
class Contraction {
 public:
  Contraction(std::vector<Named> operands, Labels output, std::map<Label, Extent> extents, Where where)
      : operands_(std::move(operands)), output_(std::move(output)), extents_(std::move(extents)), where_(where) {}

  Tensor run() {
    constexpr std::size_t kSearchedMax = 8;
    // With so many operands, trying all orders takes too long: multiply the pair with the smallest product first.
    while (operands_.size() > kSearchedMax) {
      std::pair<std::size_t, std::size_t> best{0, 1};
      double least = std::numeric_limits<double>::infinity();
      for (std::size_t i = 0; i < operands_.size(); ++i)
        for (std::size_t j = i + 1; j < operands_.size(); ++j)
          if (const double size = size_of(kept((1u << i) | (1u << j))); size < least) least = size, best = {i, j};
      Named product = multiplied(operands_[best.first], operands_[best.second],
                                 kept((1u << best.first) | (1u << best.second)), extents_, where_);
      operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(best.second));
      operands_[best.first] = std::move(product);
    }
    const std::uint32_t all = (1u << operands_.size()) - 1;
    best_.assign(all + 1, {});
    return ordered(product_of(all), output_);
  }

 private:
  struct Split {
    double cost = -1;
    std::uint32_t left = 0;
  };
  // Labels of a set of operands that are needed outside of it.
  Labels kept(std::uint32_t set) const {
    Labels labels;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!(set >> i & 1)) continue;
      for (Label label : operands_[i].labels) {
        bool needed = std::find(output_.begin(), output_.end(), label) != output_.end();
        for (std::size_t j = 0; j < operands_.size(); ++j)
          needed = needed || (!(set >> j & 1) && operands_[j].has(label));
        if (needed && std::find(labels.begin(), labels.end(), label) == labels.end()) labels.push_back(label);
      }
    }
    return labels;
  }
  double size_of(const Labels& labels) const {
    double n = 1;
    for (Label label : labels) n *= static_cast<double>(extents_.at(label));
    return n;
  }
  double cost_of(std::uint32_t set) {
    if ((set & (set - 1)) == 0) return 0;
    Split& split = best_[set];
    if (split.cost >= 0) return split.cost;
    Split best{std::numeric_limits<double>::infinity(), 0};
    for (std::uint32_t left = (set - 1) & set; left > 0; left = (left - 1) & set) {
      const std::uint32_t right = set ^ left;
      if (left < right) continue;  // each pair once
      Labels both = kept(left);
      for (Label label : kept(right))
        if (std::find(both.begin(), both.end(), label) == both.end()) both.push_back(label);
      const double cost = cost_of(left) + cost_of(right) + size_of(both);
      if (cost < best.cost) best = {cost, left};
    }
    best_[set] = best;
    return best.cost;
  }
  Named product_of(std::uint32_t set) {
    if ((set & (set - 1)) == 0) {
      std::size_t i = 0;
      while (!(set >> i & 1)) ++i;
      return summed_out(operands_[i], kept(set));
    }
    cost_of(set);
    const std::uint32_t left = best_[set].left;
    return multiplied(product_of(left), product_of(set ^ left), kept(set), extents_, where_);
  }

  std::vector<Named> operands_;
  Labels output_;
  std::map<Label, Extent> extents_;
  Where where_;
  std::vector<Split> best_;
};

std::vector<Named> named_operands(const Call& c, const EinsumAttributes& a) {
  std::vector<Named> operands;
  std::size_t at = 0;
  for (const Tensor& x : c.inputs()) {
    Named n{x, {}};
    for (int i = 0; i < x.rank(); ++i) {
      if (at == a.labels.size()) c.usage_error("there are fewer labels than axes");
      n.labels.push_back(a.labels[at++]);
    }
    operands.push_back(std::move(n));
  }
  if (at != a.labels.size()) c.usage_error("there are more labels than axes");
  return operands;
}

std::map<Label, Extent> extents_of(const Call& c, const std::vector<Named>& operands) {
  std::map<Label, Extent> extents;
  for (const Named& n : operands)
    for (std::size_t i = 0; i < n.labels.size(); ++i) {
      const Extent extent = n.x.dim(static_cast<int>(i));
      if (const auto [known, is_new] = extents.emplace(n.labels[i], extent); !is_new && known->second != extent)
        c.shape_error(fmt::format("an axis has {} elements in one operand and {} in another", known->second, extent));
    }
  return extents;
}

}  // namespace

const OpRow& einsum_row() {
  using Ints = std::vector<Extent>;
  static const OpRow row{
      .name = "einsum",
      .family = "product",
      .inputs = {{.name = "operands", .dtypes = ops::DTypes::numbers, .repeated = true}},
      .attributes = {field("labels", &EinsumAttributes::labels,
                           "a number for each axis of each operand, one operand after another", {.required = true}),
                     field("output", &EinsumAttributes::output, "the numbers of the axes of the result")},
      .result = "that of the operands",
      .doc =
          "The sum of products over all labels that the output does not name; a label twice in one operand is its "
          "diagonal.",
      .torch =
          "torch.einsum(*[e for k, t in enumerate(operands) for e in (t, labels[sum(u.dim() for u in "
          "operands[:k]):sum(u.dim() for u in operands[:k + 1])])], output)",
      .onnx = "Einsum",
      .infer =
          [](const Call& c) {
            const auto a = c.attributes<EinsumAttributes>();
            for (const Tensor& x : c.inputs())
              if (x.dtype() != c.input(0).dtype()) c.dtype_error("the dtypes differ; cast them");
            const std::map<Label, Extent> extents = extents_of(c, named_operands(c, a));
            Shape shape;
            for (std::size_t i = 0; i < a.output.size(); ++i) {
              if (!extents.contains(a.output[i]))
                c.usage_error(fmt::format("the output has label {}, which no operand has", a.output[i]));
              if (std::find(a.output.begin(), a.output.begin() + static_cast<std::ptrdiff_t>(i), a.output[i]) !=
                  a.output.begin() + static_cast<std::ptrdiff_t>(i))
                c.usage_error(fmt::format("the output has label {} twice", a.output[i]));
              shape.push_back(extents.at(a.output[i]));
            }
            return std::vector<Result>{{c.input(0).dtype(), shape}};
          },
      .decompose =
          [](const Call& c) {
            const auto a = c.attributes<EinsumAttributes>();
            std::vector<Named> operands = named_operands(c, a);
            const std::map<Label, Extent> extents = extents_of(c, operands);
            for (Named& n : operands) n = without_repeats(std::move(n));
            return Tensors{Contraction(std::move(operands), a.output, extents, c.where()).run()};
          },
      .cases = {{"a product",
                 {{{3, 4, 5}}, {{3, 5, 6}}},
                 {{"labels", Ints{0, 1, 2, 0, 2, 3}}, {"output", Ints{0, 1, 3}}}},
                {"a diagonal", {{{4, 3, 4}}}, {{"labels", Ints{0, 1, 0}}, {"output", Ints{1, 0}}}},
                {"a trace", {{{4, 4}}}, {{"labels", Ints{0, 0}}}},
                {"four in a chain",
                 {{{2, 9}}, {{9, 3}}, {{3, 8}}, {{8, 4}}},
                 {{"labels", Ints{0, 1, 1, 2, 2, 3, 3, 4}}, {"output", Ints{4, 0}}}},
                {"outer, then elementwise",
                 {{{3}}, {{4}}, {{3, 4}}},
                 {{"labels", Ints{0, 1, 0, 1}}, {"output", Ints{1, 0}}}},
                {"sums of an operand alone", {{{3, 4}}, {{5, 2}}}, {{"labels", Ints{0, 1, 2, 3}}, {"output", Ints{3}}}},
                {"integers",
                 {{{3, 4}, -5, 5, DType::i32}, {{4, 2}, -5, 5, DType::i32}},
                 {{"labels", Ints{0, 1, 1, 2}}, {"output", Ints{0, 2}}},
                 false}},
      .errors = {{"extents that differ",
                  {{{3, 4}}, {{5, 2}}},
                  {{"labels", Ints{0, 1, 1, 2}}, {"output", Ints{0, 2}}},
                  "an axis has 4 elements in one operand and 5"},
                 {"labels too few", {{{3, 4}}}, {{"labels", Ints{0}}}, "fewer labels than axes"},
                 {"an unknown label", {{{3}}}, {{"labels", Ints{0}}, {"output", Ints{1}}}, "which no operand has"},
                 {"a label twice", {{{3}}}, {{"labels", Ints{0}}, {"output", Ints{0, 0}}}, "has label 0 twice"}}};
  return row;
}

// ---- Subscripts ----------------------------------------------------------------------------------------------------------

namespace {

constexpr Label kEllipsis = 1000;  // label of its last axis; those before it have the next numbers

[[noreturn]] void fail_subscripts(std::string_view text, const std::string& fact, Where where) {
  throw UsageError(fmt::format("einsum: {} in {}\n  called at {}:{} ({})", fact, quote(std::string(text)),
                               where.file_name(), where.line(), where.function_name()));
}

// Labels of one operand; `rank` -1: of the result, whose ellipsis has `dots` axes.
Labels labels_of(std::string_view text, std::string_view all, int rank, int& dots, Where where) {
  const auto letters =
      std::count_if(text.begin(), text.end(), [](char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0; });
  Labels labels;
  bool has_dots = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (std::isalpha(static_cast<unsigned char>(text[i])) != 0) {
      labels.push_back(text[i]);
      continue;
    }
    if (text.substr(i, 3) != "..." || has_dots)
      fail_subscripts(all, fmt::format("'{}' is neither a letter nor the one \"...\"", text[i]), where);
    has_dots = true;
    i += 2;
    const int axes = rank < 0 ? dots : rank - static_cast<int>(letters);
    if (rank >= 0) dots = std::max(dots, axes);
    for (int d = axes; d-- > 0;) labels.push_back(kEllipsis + d);
  }
  if (rank >= 0 && static_cast<int>(labels.size()) != rank)
    fail_subscripts(all, fmt::format("an operand of {} axes has {} subscripts", rank, labels.size()), where);
  return labels;
}

}  // namespace
}  // namespace graph

Tensor einsum(std::string_view subscripts, std::span<const Tensor> operands, Where where) {
  using namespace graph;
  for (const Tensor& x : operands)
    if (!x.defined()) throw UsageError("einsum: an operand has no value");
  const auto arrow = subscripts.find("->");
  const std::string_view inputs = subscripts.substr(0, arrow);
  const auto commas = static_cast<std::size_t>(std::count(inputs.begin(), inputs.end(), ','));
  if (operands.empty() || commas + 1 != operands.size())
    fail_subscripts(subscripts, fmt::format("{} operands are given and {} named", operands.size(), commas + 1), where);
  EinsumAttributes attributes;
  Tensors inputs_given(operands.begin(), operands.end());
  std::vector<Labels> each;
  std::map<Label, Extent> widest;  // of the axes of "...", which broadcast
  int dots = 0;
  std::size_t begin = 0;
  for (const Tensor& x : operands) {
    const std::size_t end = std::min(inputs.find(',', begin), inputs.size());
    each.push_back(labels_of(inputs.substr(begin, end - begin), subscripts, x.rank(), dots, where));
    for (std::size_t i = 0; i < each.back().size(); ++i)
      if (each.back()[i] >= kEllipsis) {
        Extent& known = widest.emplace(each.back()[i], 1).first->second;
        known = std::max(known, x.dim(static_cast<int>(i)));
      }
    begin = end + 1;
  }
  // Extents of 1 beside wider ones repeat. The row reports extents that do not fit.
  for (std::size_t k = 0; k < operands.size(); ++k) {
    Shape shape = operands[k].shape();
    for (std::size_t i = 0; i < each[k].size(); ++i)
      if (each[k][i] >= kEllipsis && shape[static_cast<int>(i)] == 1)
        shape[static_cast<int>(i)] = widest.at(each[k][i]);
    inputs_given[k] = expand(operands[k], shape, where);
    attributes.labels.insert(attributes.labels.end(), each[k].begin(), each[k].end());
  }
  if (arrow != std::string_view::npos) {
    attributes.output = labels_of(subscripts.substr(arrow + 2), subscripts, -1, dots, where);
  } else {
    for (int d = dots; d-- > 0;) attributes.output.push_back(kEllipsis + d);
    Labels letters = attributes.labels;
    std::sort(letters.begin(), letters.end());
    for (const Label label : letters)
      if (label < kEllipsis && std::count(letters.begin(), letters.end(), label) == 1)
        attributes.output.push_back(label);
  }
  return graph::call(einsum_row(), std::move(inputs_given), attributes, where);
}

}  // namespace weft
