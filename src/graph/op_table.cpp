// All rows in one list: the elementwise rows and the reductions, converted to the form of the others, then the families.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <unordered_map>

#include "base/quote.hpp"
#include "graph/op.hpp"
#include "graph/op_families.hpp"
#include "ops/names.hpp"
#include "weft/ops.hpp"

namespace weft::graph {
namespace {

std::string_view text_of(ops::Result result) {
  switch (result) {
    case ops::Result::same: return "that of the inputs";
    case ops::Result::floating: return "float";
    case ops::Result::boolean: return "bool";
    case ops::Result::integer: return "i32";
  }
  throw InternalError("op table: unknown rule of the result's dtype");
}

std::vector<AttributeSpec> attributes_of_row(const auto& row) {
  std::vector<AttributeSpec> specs;
  for (const ops::Attribute& a : row.attributes)
    specs.push_back({.name = std::string(a.name), .default_value = a.default_value, .doc = std::string(a.doc)});
  return specs;
}

std::vector<double> numbers_of(const Arguments& arguments, const auto& row) {
  std::vector<double> values;
  for (const ops::Attribute& a : row.attributes) values.push_back(arguments.number(a.name));
  return values;
}

OpRow row_of(const ops::ElementwiseRow& row) {
  static constexpr std::string_view kFamilies[] = {"unary", "binary", "ternary"};
  OpRow made{.name = std::string(row.name),
             .aliases = {row.aliases.begin(), row.aliases.end()},
             .family = std::string(kFamilies[std::min<std::size_t>(row.inputs.size(), 3) - 1]),
             .attributes = attributes_of_row(row),
             .result = std::string(text_of(row.result)),
             .differentiable = row.differentiable,
             .doc = std::string(row.doc),
             .elementwise = &row};
  for (std::string_view input : row.inputs) made.inputs.push_back({std::string(input), row.dtypes});
  made.apply = [&row](const Arguments& a) {
    return Tensors{weft::elementwise(row.name, a.inputs(), numbers_of(a, row))};
  };
  return made;
}

OpRow row_of(const ops::ReduceRow& row) {
  OpRow made{.name = std::string(row.name),
             .aliases = {row.aliases.begin(), row.aliases.end()},
             .family = "reduction",
             .inputs = {{"x", row.dtypes}},
             .attributes = attributes_of_row(row),
             .result = std::string(text_of(row.result)),
             .differentiable = row.differentiable,
             .doc = std::string(row.doc),
             .reduction = &row};
  for (AttributeSpec& a : made.attributes)
    if (a.name == "correction") a.aliases = {"ddof"};
  made.attributes.push_back({.name = "axes",
                             .type = AttributeType::integers,
                             .default_value = std::vector<Extent>{},
                             .doc = "axes to reduce; none given: all of them",
                             .aliases = {"axis", "dim", "dims"}});
  made.attributes.push_back({.name = "keepdims",
                             .type = AttributeType::boolean,
                             .default_value = false,
                             .doc = "whether reduced axes stay, with extent 1",
                             .aliases = {"keepdim"}});
  made.apply = [&row](const Arguments& a) {
    return Tensors{
        weft::reduce(row.name, a.input(0), a.axes("axes"), {.keepdims = a.boolean("keepdims")}, numbers_of(a, row))};
  };
  return made;
}

// Globals of other files add to it while the program starts, on one thread.
std::vector<OpRows (*)()>& families() {
  static auto& list = *new std::vector<OpRows (*)()>{
      making_rows,      view_rows,        padding_rows,       triangle_rows,    part_rows,
      product_rows,     gather_rows,      norm_rows,          attention_rows,   transformer_part_rows,
      loss_rows,        cache_rows,       block_rows,         scan_rows,        window_rows,
      convolution_rows, pooling_rows,     interpolation_rows, image_norm_rows,  network_rows,
      recurrent_rows,   margin_loss_rows, softmax_rows,       contraction_rows, linear_algebra_rows,
      order_rows,       quantile_rows,    statistics_rows,    state_space_rows, layout_rows,
      diagonal_rows,    pixel_rows,       along_axis_rows,    index_slice_rows, indexing_rows,
      mask_rows,        range_rows,       label_loss_rows,    grouped_rows,     public_attention_rows,
      float_part_rows,  fold_rows,        poisson_rows,       ctc_rows,         polynomial_rows,
      lu_rows,          matrix_rows,      chain_rows,         distance_rows,    sample_rows,
      segment_rows,     unpooling_rows,   histogram_rows,     join_rows,        view_scatter_rows};
  return list;
}

class OpTable {
 public:
  OpTable() {
    add_elementwise();
    for (const ops::ReduceRow& row : ops::reduce_rows()) enter(keep(row_of(row)));
    for (OpRows (*family)() : families())
      for (const OpRow* row : family()) enter(*row);
  }

  std::vector<const OpRow*> rows() {
    const std::lock_guard lock(mutex_);
    add_elementwise();
    return rows_;
  }
  const OpRow* find(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
    add_elementwise();
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }
  void add(const std::vector<const OpRow*>& rows) {
    const std::lock_guard lock(mutex_);
    add_elementwise();
    for (const OpRow* row : rows) {
      if (row->name.empty()) throw UsageError("op table: an op without a name");
      check_free(row->name);
      for (const std::string& alias : row->aliases) check_free(alias);
    }
    for (const OpRow* row : rows) enter(*row);
  }
  const OpRow& keep_and_add(OpRow row) {
    const OpRow* kept;
    {
      const std::lock_guard lock(mutex_);
      kept = &keep(std::move(row));
    }
    add({kept});
    return *kept;
  }
  std::string nearest(std::string_view name) {
    const std::lock_guard lock(mutex_);
    return std::string(nearest_name(name, names_));
  }

 private:
  const OpRow& keep(OpRow row) { return kept_.emplace_back(std::move(row)); }
  void check_free(std::string_view name) const {
    if (by_name_.contains(name)) throw UsageError(fmt::format("op table: the name {} is taken", name));
  }
  void enter(const OpRow& row) {
    rows_.push_back(&row);
    auto put = [&](std::string_view name) {
      if (!by_name_.emplace(name, &row).second)
        throw InternalError(fmt::format("op table: two ops are called {}", name));
      names_.push_back(name);
    };
    put(row.name);
    for (const std::string& alias : row.aliases) put(alias);
  }
  // Adds rows that were registered since the last call.
  void add_elementwise() {
    const auto all = ops::elementwise_rows();
    for (; elementwise_count_ < all.size(); ++elementwise_count_) enter(keep(row_of(*all[elementwise_count_])));
  }

  std::mutex mutex_;
  std::deque<OpRow> kept_;  // a deque, so addresses stay valid
  std::vector<const OpRow*> rows_;
  std::vector<std::string_view> names_;
  std::unordered_map<std::string_view, const OpRow*> by_name_;
  std::size_t elementwise_count_ = 0;
};

// Never destroyed: nodes point into it.
OpTable& op_table() {
  static OpTable& t = *new OpTable;
  return t;
}

}  // namespace

bool add_family(OpRows (*family)()) {
  families().push_back(family);
  return true;
}

std::vector<const OpRow*> op_rows() { return op_table().rows(); }
const OpRow* find_op_row(std::string_view name) { return op_table().find(name); }
void register_rows(const std::vector<const OpRow*>& rows) { op_table().add(rows); }
const OpRow& register_row(OpRow row) { return op_table().keep_and_add(std::move(row)); }

const OpRow& op_row(std::string_view name) {
  if (const OpRow* row = find_op_row(name)) return *row;
  const std::string nearest = op_table().nearest(name);
  throw UsageError(fmt::format("no op is called {}.{} All of them: weft ops list", quote(std::string(name)),
                               nearest.empty() ? "" : fmt::format(" Did you mean {}?", nearest)));
}

}  // namespace weft::graph
