// Classic machine learning: the domain ai.onnx.ml, as sklearn-onnx and the converters of gradient boosting write it. Numbers only.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "onnx/apply.hpp"
#include "weft/ops/indexing.hpp"

namespace weft::onnx {
namespace {

using A = Application;

Tensor features(const A& a) {
  const Tensor x = a[0].rank() == 1 ? unsqueeze(a[0], 0) : a[0];
  if (x.rank() != 2) a.shape_error("it takes rows of features");
  return x.dtype() == DType::f32 ? x : cast(x, DType::f32);
}
Tensor row_of(const A& a, std::string_view name, Extent count) {
  const std::vector<double> values = a.numbers(name);
  const auto n = static_cast<Extent>(values.size());
  if (n != count && n != 1) a.usage_error(fmt::format("{} has {} numbers; {} are needed", name, n, count));
  return a.make(values, {n}, DType::f32);
}

void scale_features(A& a) {
  const Tensor x = features(a);
  a.give((x - row_of(a, "offset", x.dim(1))) * row_of(a, "scale", x.dim(1)));
}
void normalise_rows(A& a) {
  const Tensor x = features(a);
  const std::string_view norm = a.word("norm", "MAX");
  if (norm != "MAX" && norm != "L1" && norm != "L2") a.usage_error(fmt::format("unknown norm {}", norm));
  const Tensor length = norm == "MAX"  ? amax(x, 1, {.keepdims = true})
                        : norm == "L1" ? sum(abs(x), 1, {.keepdims = true})
                                       : sqrt(sum(square(x), 1, {.keepdims = true}));
  a.give(where(eq(length, 0.0), x, x / length));
}
// Columns of a table; a vector is a table of one row.
void choose_features(A& a) {
  const Tensor x = a[0].rank() == 1 ? unsqueeze(a[0], 0) : a[0];
  a.give(index_select(x, x.rank() - 1, reshape(a[1], {a[1].numel()})));
}
// A list of maps from classes to scores in ONNX. Weft has no maps, and gives the scores: columns in the order of the classes.
void scores_without_names(A& a) { a.give(features(a)); }
void binarise(A& a) { a.give(cast(gt(a[0], a.number("threshold", 0)), a[0].dtype())); }

// Scores [N, E] after the node's post_transform.
Tensor transformed(const A& a, const Tensor& scores) {
  const std::string_view kind = a.word("post_transform", "NONE");
  if (kind == "NONE") return scores;
  if (kind == "SOFTMAX") return softmax(scores, 1);
  if (kind == "LOGISTIC") return sigmoid(scores);
  a.usage_error(fmt::format("post_transform {} is not supported; export with NONE, SOFTMAX or LOGISTIC", kind));
}
std::vector<Extent> labels_of(const A& a, std::string_view name) {
  std::vector<Extent> labels = a.integers(name);
  if (labels.empty()) a.usage_error("classes with texts for names are not supported; export the model with integers");
  return labels;
}
void give_labels(A& a, const std::vector<Extent>& labels, const Tensor& positions) {
  a.give(0, index_select(a.make(labels, {static_cast<Extent>(labels.size())}), 0, positions));
}

// x W^T + b, of the attributes of a linear model with so many outputs.
Tensor linear_scores(const A& a, Extent outputs) {
  const Tensor x = features(a);
  const std::vector<double> weights = a.numbers("coefficients"), bias = a.numbers("intercepts");
  if (outputs < 1 || static_cast<Extent>(weights.size()) != outputs * x.dim(1))
    a.shape_error(fmt::format("{} coefficients do not fit {} outputs", weights.size(), outputs));
  const Tensor y = matmul(x, transpose(a.make(weights, {outputs, x.dim(1)}, DType::f32)));
  return bias.empty() ? y : y + row_of(a, "intercepts", outputs);
}
void linear_regressor(A& a) { a.give(transformed(a, linear_scores(a, a.integer("targets", 1)))); }
void linear_classifier(A& a) {
  const std::vector<Extent> labels = labels_of(a, "classlabels_ints");
  const Tensor scores = linear_scores(a, static_cast<Extent>(labels.size()));
  give_labels(a, labels, argmax(scores, 1));
  a.give(1, transformed(a, scores));
}

// ---- Trees ----------------------------------------------------------------------------------------------------------------

// The nodes of all trees in one list. A leaf leads to itself.
struct Forest {
  Tensor feature, value, yes, no, missing_is_yes;  // [nodes]
  Tensor roots;                                    // [trees]
  Tensor weights;                                  // [nodes, outputs], of leaves
  std::string_view mode;                           // of all nodes that are not leaves
  Extent depth = 0;
};

Forest forest_of(const A& a, const std::string& prefix, Extent outputs, Extent columns) {
  const std::vector<Extent> trees = a.integers("nodes_treeids"), ids = a.integers("nodes_nodeids"),
                            yes = a.integers("nodes_truenodeids"), no = a.integers("nodes_falsenodeids"),
                            features = a.integers("nodes_featureids");
  const std::vector<std::string_view> modes = a.words("nodes_modes");
  const std::vector<double> values = a.numbers("nodes_values");
  const std::size_t n = ids.size();
  std::vector<Extent> missing = a.integers("nodes_missing_value_tracks_true");
  if (missing.empty()) missing.resize(n, 0);
  if (n == 0 || trees.size() != n || yes.size() != n || no.size() != n || features.size() != n || modes.size() != n ||
      values.size() != n || missing.size() != n)
    a.usage_error("the lists of its nodes differ in length");
  if (outputs < 1 || static_cast<Extent>(n) > kMaxMadeElements / outputs) a.usage_error("too many outputs");
  std::map<std::pair<Extent, Extent>, Extent> place;  // by tree and id
  for (std::size_t i = 0; i < n; ++i)
    if (!place.emplace(std::pair(trees[i], ids[i]), static_cast<Extent>(i)).second)
      a.usage_error(fmt::format("two nodes {} of tree {}", ids[i], trees[i]));
  const auto found = [&](Extent tree, Extent id) {
    const auto at = place.find({tree, id});
    if (at == place.end()) a.usage_error(fmt::format("tree {} has no node {}", tree, id));
    return at->second;
  };
  Forest f;
  std::vector<Extent> to_yes(n), to_no(n), column(n, 0), roots;
  std::vector<bool> is_child(n, false);
  for (std::size_t i = 0; i < n; ++i) {
    const auto self = static_cast<Extent>(i);
    to_yes[i] = to_no[i] = self;
    if (modes[i] == "LEAF") continue;
    if (!f.mode.empty() && f.mode != modes[i]) a.usage_error("its nodes compare in different ways; Weft takes one way");
    f.mode = modes[i];
    if (features[i] < 0 || features[i] >= columns) a.shape_error(fmt::format("x has no feature {}", features[i]));
    column[i] = features[i];
    to_yes[i] = found(trees[i], yes[i]);
    to_no[i] = found(trees[i], no[i]);
    if (to_yes[i] == self || to_no[i] == self) a.usage_error("its nodes form a cycle");
    for (const Extent child : {to_yes[i], to_no[i]}) {
      if (is_child[static_cast<std::size_t>(child)] && to_yes[i] != to_no[i]) a.usage_error("a node has two parents");
      is_child[static_cast<std::size_t>(child)] = true;
    }
  }
  std::vector<std::pair<Extent, Extent>> open;  // node and its depth
  for (std::size_t i = 0; i < n; ++i)
    if (!is_child[i]) roots.push_back(static_cast<Extent>(i)), open.emplace_back(static_cast<Extent>(i), 0);
  std::size_t seen = 0;
  for (; !open.empty() && seen <= n; ++seen) {
    const auto [at, depth] = open.back();
    open.pop_back();
    f.depth = std::max(f.depth, depth);
    const Extent left = to_yes[static_cast<std::size_t>(at)], right = to_no[static_cast<std::size_t>(at)];
    if (left != at) open.emplace_back(left, depth + 1);
    if (right != at && right != left) open.emplace_back(right, depth + 1);
  }
  if (seen != n) a.usage_error("its nodes form a cycle");

  const std::vector<Extent> leaf_trees = a.integers(prefix + "_treeids"), leaves = a.integers(prefix + "_nodeids"),
                            outs = a.integers(prefix + "_ids");
  const std::vector<double> weights = a.numbers(prefix + "_weights");
  if (leaf_trees.size() != leaves.size() || outs.size() != leaves.size() || weights.size() != leaves.size())
    a.usage_error("the lists of its weights differ in length");
  std::vector<double> table(n * static_cast<std::size_t>(outputs), 0);
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (outs[i] < 0 || outs[i] >= outputs) a.usage_error(fmt::format("there is no output {}", outs[i]));
    table[static_cast<std::size_t>(found(leaf_trees[i], leaves[i]) * outputs + outs[i])] += weights[i];
  }
  const Shape list{static_cast<Extent>(n)};
  f.feature = a.make(column, list);
  f.value = a.make(values, list, DType::f32);
  f.yes = a.make(to_yes, list);
  f.no = a.make(to_no, list);
  f.missing_is_yes = ne(a.make(missing, list), 0.0);
  f.roots = a.make(roots, {static_cast<Extent>(roots.size())});
  f.weights = a.make(table, {static_cast<Extent>(n), outputs}, DType::f32);
  return f;
}

// The sums of the weights of the leaves that rows of x reach: [N, outputs].
Tensor forest_sums(const A& a, const Forest& f, const Tensor& x) {
  const Extent rows = x.dim(0), trees = f.roots.dim(0);
  const auto of_node = [&](const Tensor& list, const Tensor& node) {
    return reshape(index_select(list, 0, reshape(node, {rows * trees})), {rows, trees});
  };
  Tensor node = expand(unsqueeze(f.roots, 0), {rows, trees});
  for (Extent i = 0; i < f.depth; ++i) {
    const Tensor v = take_along_axis(x, of_node(f.feature, node), 1), limit = of_node(f.value, node);
    Tensor is;
    if (f.mode == "BRANCH_LEQ")
      is = le(v, limit);
    else if (f.mode == "BRANCH_LT")
      is = lt(v, limit);
    else if (f.mode == "BRANCH_GTE")
      is = ge(v, limit);
    else if (f.mode == "BRANCH_GT")
      is = gt(v, limit);
    else if (f.mode == "BRANCH_EQ")
      is = eq(v, limit);
    else if (f.mode == "BRANCH_NEQ")
      is = ne(v, limit);
    else
      a.usage_error(fmt::format("unknown mode {}", f.mode));
    is = where(isnan(v), of_node(f.missing_is_yes, node), is);
    node = where(is, of_node(f.yes, node), of_node(f.no, node));
  }
  const Tensor reached = index_select(f.weights, 0, reshape(node, {rows * trees}));
  return sum(reshape(reached, {rows, trees, f.weights.dim(1)}), 1);
}
Tensor with_base(const A& a, const Tensor& scores) {
  return a.numbers("base_values").empty() ? scores : scores + row_of(a, "base_values", scores.dim(1));
}

void tree_regressor(A& a) {
  const Tensor x = features(a);
  const Forest f = forest_of(a, "target", a.integer("n_targets", 1), x.dim(1));
  Tensor y = forest_sums(a, f, x);
  const std::string_view how = a.word("aggregate_function", "SUM");
  if (how == "AVERAGE")
    y = y / static_cast<double>(f.roots.dim(0));
  else if (how != "SUM")
    a.usage_error(fmt::format("aggregate_function {} is not supported", how));
  a.give(transformed(a, with_base(a, y)));
}
void tree_classifier(A& a) {
  const std::vector<Extent> labels = labels_of(a, "classlabels_int64s"), ids = a.integers("class_ids");
  const std::vector<double> weights = a.numbers("class_weights");
  const Tensor x = features(a);
  const auto classes = static_cast<Extent>(labels.size());
  const bool one_score = classes == 2 && std::all_of(ids.begin(), ids.end(), [&](Extent id) { return id == ids[0]; });
  const Forest f = forest_of(a, "class", classes, x.dim(1));
  if (!one_score) {  // the class with the largest score, also of two classes, for which ONNX Runtime looks at the second score alone
    const Tensor scores = with_base(a, forest_sums(a, f, x));
    give_labels(a, labels, argmax(scores, 1));
    return a.give(1, transformed(a, scores));
  }
  // Two classes with one score: a probability if no weight is negative, else a logit.
  Tensor score = narrow(forest_sums(a, f, x), 1, ids.empty() ? 0 : ids[0], 1);
  if (const std::vector<double> base = a.numbers("base_values"); !base.empty()) score = score + base.back();
  const bool is_share = std::all_of(weights.begin(), weights.end(), [](double w) { return w >= 0; });
  give_labels(a, labels, cast(reshape(gt(score, is_share ? 0.5 : 0.0), {x.dim(0)}), DType::i32));
  a.give(1, transformed(a, concat({is_share ? 1.0 - score : neg(score), score}, 1)));
}

constexpr Operator kLearningOperators[] = {
    {"Scaler", scale_features},
    {"Normalizer", normalise_rows},
    {"Binarizer", binarise},
    {"ArrayFeatureExtractor", choose_features},
    {"ZipMap", scores_without_names},
    {"LinearRegressor", linear_regressor},
    {"LinearClassifier", linear_classifier},
    {"TreeEnsembleRegressor", tree_regressor},
    {"TreeEnsembleClassifier", tree_classifier},
};

}  // namespace

std::span<const Operator> learning_operators() { return kLearningOperators; }

}  // namespace weft::onnx
