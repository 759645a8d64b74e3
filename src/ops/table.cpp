#include "ops/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "ops/builder.hpp"
#include "ops/derivative.hpp"
#include "ops/names.hpp"
#include "ops/parse.hpp"
#include "ops/rows.hpp"
#include "weft/error.hpp"

namespace weft::ops {
namespace {

using scalar::Expression;

std::vector<std::string> operands_of(const ElementwiseRow& row) {
  std::vector<std::string> names;
  for (std::string_view input : row.inputs) names.emplace_back(input);
  for (const Attribute& attribute : row.attributes) names.emplace_back(attribute.name);
  return names;
}

/// Adds the names that texts written for the reference system use, unless the row uses them itself.
void add_aliases(scalar::Names& names, std::size_t inputs) {
  auto add = [&](const char* alias, std::size_t operand) {
    if (std::find(names.operands.begin(), names.operands.end(), alias) == names.operands.end())
      names.aliases.emplace_back(alias, static_cast<int>(operand));
  };
  add("input", 0);
  if (inputs > 1) add("other", 1);
}

Expression parse_forward(const ElementwiseRow& row) {
  scalar::Names names{.operands = operands_of(row), .results = {"output"}};
  add_aliases(names, row.inputs.size());
  return scalar::parse(row.forward, names);
}

Expression parse_gradient(const ElementwiseRow& row, std::size_t input, std::string_view text,
                          std::vector<scalar::OpCall>* calls = nullptr) {
  scalar::Names names{.operands = operands_of(row)};
  names.operands.insert(names.operands.end(), {"output", "g"});
  add_aliases(names, row.inputs.size());
  names.aliases.emplace_back("outputGrad", static_cast<int>(names.operands.size()) - 1);
  // The first name is the result; a text may assign the other too.
  names.results = input == 0 ? std::vector<std::string>{"inputGrad", "otherGrad"}
                             : std::vector<std::string>{"otherGrad", "inputGrad"};
  if (calls == nullptr) return scalar::parse(text, names);
  return scalar::parse_with_calls(text, names, {row.gradient_ops.begin(), row.gradient_ops.size()}, *calls);
}

/// A row and the expressions made from its texts.
struct Entry {
  explicit Entry(const ElementwiseRow& given) : row(&given) {}

  const ElementwiseRow* row;
  std::once_flag parsed_forward, parsed_gradients;
  Expression forward;
  std::vector<Expression> gradients;
  std::vector<GradientOfCalls> gradients_of_calls;
  std::mutex typed_mutex;
  std::map<std::uint64_t, Expression> typed;  // by the inputs' types; nodes of a map do not move
};

/// A registered op owns the text that its row views.
struct Registered {
  CustomOp op;
  ElementwiseRow row;
};

ElementwiseRow row_of(const CustomOp& op) {
  ElementwiseRow row{.name = std::string_view(op.name),
                     .inputs = InputNames(List<std::string_view, kOperandsMax>{}),
                     .forward = std::string_view(op.forward),
                     .dtypes = DTypes::all,
                     .result = Result::same,
                     .tested = {{-2, 2}},
                     .max_ulp = 16,
                     .ulp_floor = 1,
                     .doc = std::string_view(op.doc)};
  for (const std::string& input : op.inputs) row.inputs.push_back(input);
  for (const auto& [name, value] : op.attributes)
    row.attributes.push_back({.name = name, .default_value = value, .tested = value, .doc = ""});
  for (const std::string& gradient : op.gradients) row.gradients.push_back(gradient);
  for (const std::string& alias : op.aliases) row.aliases.push_back(alias);
  return row;
}

class Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }

  std::vector<const ElementwiseRow*> rows() const {
    const std::shared_lock lock(mutex_);
    std::vector<const ElementwiseRow*> out;
    for (const Entry& entry : entries_) out.push_back(entry.row);
    return out;
  }

  Entry* find(std::string_view name) {
    const std::shared_lock lock(mutex_);
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second;
  }

  Entry& entry_of(const ElementwiseRow& row) {
    Entry* entry = find(row.name);
    if (entry == nullptr || entry->row != &row)
      throw InternalError(fmt::format("op table: the row '{}' is not of the table", std::string_view(row.name)));
    return *entry;
  }

  std::vector<std::string_view> names() const {
    const std::shared_lock lock(mutex_);
    std::vector<std::string_view> out;
    for (const auto& [name, entry] : by_name_) out.push_back(name);
    return out;
  }

  const ElementwiseRow& add(const CustomOp& op, Result result) {
    auto registered = std::make_unique<Registered>(Registered{op, row_of(op)});
    registered->row = row_of(registered->op);  // its views refer to the copy that stays
    registered->row.result = result;
    registered->row.differentiable = result == Result::same;
    const std::unique_lock lock(mutex_);
    if (const auto found = by_name_.find(op.name); found != by_name_.end()) {
      for (const auto& known : registered_)
        if (&known->row == found->second->row && same(known->op, op)) return known->row;
      throw UsageError(fmt::format("register_op: there is an op '{}' already; choose another name", op.name));
    }
    for (const std::string& alias : op.aliases)
      if (by_name_.contains(alias) || alias == op.name)
        throw UsageError(fmt::format("register_op: {}: the alias '{}' is taken; choose another", op.name, alias));
    registered_.push_back(std::move(registered));
    return insert(registered_.back()->row);
  }

 private:
  Registry() {
    for (const auto rows : {unary_rows(), activation_rows(), binary_rows(), ternary_rows(), special_rows()})
      for (const ElementwiseRow& row : rows) insert(row);
  }

  static bool same(const CustomOp& a, const CustomOp& b) {
    return a.inputs == b.inputs && a.forward == b.forward && a.attributes == b.attributes &&
           a.gradients == b.gradients && a.aliases == b.aliases;
  }

  const ElementwiseRow& insert(const ElementwiseRow& row) {
    Entry& entry = entries_.emplace_back(row);
    by_name_.emplace(row.name, &entry);
    for (std::string_view alias : row.aliases) by_name_.emplace(alias, &entry);
    return row;
  }

  mutable std::shared_mutex mutex_;
  std::deque<Entry> entries_;
  std::unordered_map<std::string_view, Entry*> by_name_;
  std::vector<std::unique_ptr<Registered>> registered_;
};

const Expression& forward(Entry& entry) {
  std::call_once(entry.parsed_forward, [&] { entry.forward = parse_forward(*entry.row); });
  return entry.forward;
}

std::vector<Expression> make_gradients(Entry& entry) {
  std::vector<Expression> out = scalar::gradient(forward(entry));
  for (std::size_t i = 0; i < entry.row->gradients.size(); ++i)
    if (!entry.row->gradients[i].empty()) out[i] = parse_gradient(*entry.row, i, entry.row->gradients[i]);
  return out;
}

std::vector<GradientOfCalls> make_gradients_of_calls(Entry& entry) {
  std::vector<GradientOfCalls> out;
  if (entry.row->gradient_ops.empty()) return out;
  for (std::size_t i = 0; i < entry.gradients.size(); ++i) {
    out.push_back({entry.gradients[i], {}});
    if (i < entry.row->gradients.size() && !entry.row->gradients[i].empty())
      out[i].gradient = parse_gradient(*entry.row, i, entry.row->gradients[i], &out[i].calls);
  }
  return out;
}

[[noreturn]] void unknown(std::string_view kind, std::string_view name, std::span<const std::string_view> known) {
  std::string message = fmt::format("no {} is called '{}'", kind, name.substr(0, 60));
  const std::string_view near = nearest_name(name, known);
  message += near.empty() ? std::string("; `weft ops list` shows them all") : fmt::format("; did you mean '{}'?", near);
  throw UsageError(message);
}

DType computing_type(Result result, DType promoted) {
  if (result == Result::floating && !is_float(promoted)) return DType::f32;
  return promoted == DType::boolean ? DType::i32 : compute_type(promoted);
}

DType promoted(std::span<const DType> types) {
  DType out = types[0];
  try {
    for (DType type : types) out = promote(out, type);
  } catch (const DTypeError&) {
    return out;  // if the text combines these types, typing it reports that they have no common type
  }
  return out;
}

std::string_view words_of(DTypes set) {
  switch (set) {
    case DTypes::floats: return "floats";
    case DTypes::numbers: return "floats and integers";
    case DTypes::integers: return "integers";
    case DTypes::bits: return "integers and bool";
    case DTypes::all: return "every dtype that computes";
  }
  return "";
}

void check_dtype(DTypes allowed, DType given, std::string_view what) {
  if (!allows(allowed, given))
    throw DTypeError(fmt::format("takes {}, and {} is {}; cast it", words_of(allowed), what, name_of(given)));
}

/// `expression` with its first operands cast to floats where the op computes in floats.
Expression in_floats(const Expression& expression, std::span<const DType> inputs, DType type) {
  scalar::Builder builder(expression.inputs);
  std::vector<int> operands;
  for (int i = 0; i < expression.inputs; ++i) {
    const int operand = builder.input(i);
    const bool is_input = static_cast<std::size_t>(i) < inputs.size();
    operands.push_back(is_input && !is_float(inputs[static_cast<std::size_t>(i)]) ? builder.cast(operand, type)
                                                                                  : operand);
  }
  return builder.finish(builder.inlined(expression, operands));
}

/// The result type of a user's op for floats, or for integers if it takes no floats.
Result result_of(const Expression& forward) {
  const auto count = static_cast<std::size_t>(forward.inputs);
  DType type;
  try {
    type = scalar::typed(forward, std::vector<DType>(count, DType::f32)).type();
  } catch (const DTypeError&) {
    type = scalar::typed(forward, std::vector<DType>(count, DType::i32)).type();
    return type == DType::boolean ? Result::boolean : Result::integer;
  }
  return type == DType::boolean ? Result::boolean : type == DType::f32 ? Result::same : Result::integer;
}

void check_name(const CustomOp& op, std::string_view name) {
  auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  bool good = !name.empty() && name.size() <= 64 && is_letter(name[0]);
  for (char c : name) good = good && (is_letter(c) || (c >= '0' && c <= '9'));
  if (!good)
    throw UsageError(fmt::format("register_op: {}: '{}' is not a name; use letters, digits and _, at most 64",
                                 op.name.substr(0, 64), name.substr(0, 64)));
}

Entry& with_gradients(const ElementwiseRow& row) {
  Entry& entry = Registry::instance().entry_of(row);
  std::call_once(entry.parsed_gradients, [&] {
    entry.gradients = make_gradients(entry);
    entry.gradients_of_calls = make_gradients_of_calls(entry);
  });
  return entry;
}

}  // namespace

bool allows(DTypes set, DType type) {
  switch (set) {
    case DTypes::floats: return is_float(type);
    case DTypes::numbers: return is_float(type) || is_integer(type);
    case DTypes::integers: return is_integer(type);
    case DTypes::bits: return is_integer(type) || type == DType::boolean;
    case DTypes::all: return !is_storage(type);
  }
  return false;
}

std::vector<const ElementwiseRow*> elementwise_rows() { return Registry::instance().rows(); }

const ElementwiseRow* find_elementwise(std::string_view name) {
  const Entry* entry = Registry::instance().find(name);
  return entry == nullptr ? nullptr : entry->row;
}

const ElementwiseRow& elementwise_row(std::string_view name) {
  if (const ElementwiseRow* row = find_elementwise(name)) return *row;
  unknown("elementwise op", name, Registry::instance().names());
}

const ReduceRow* find_reduce(std::string_view name) {
  for (const ReduceRow& row : reduce_rows())
    if (row.name == name || std::find(row.aliases.begin(), row.aliases.end(), name) != row.aliases.end()) return &row;
  return nullptr;
}

const ReduceRow& reduce_row(std::string_view name) {
  if (const ReduceRow* row = find_reduce(name)) return *row;
  std::vector<std::string_view> known;
  for (const ReduceRow& row : reduce_rows()) known.push_back(row.name);
  unknown("reduction", name, known);
}

const Expression& forward(const ElementwiseRow& row) { return forward(Registry::instance().entry_of(row)); }

const std::vector<Expression>& gradients(const ElementwiseRow& row) { return with_gradients(row).gradients; }

const std::vector<GradientOfCalls>& gradients_of_calls(const ElementwiseRow& row) {
  return with_gradients(row).gradients_of_calls;
}

DType attribute_type(const ElementwiseRow& row, std::span<const DType> inputs) {
  return computing_type(row.result, promoted(inputs));
}

const Expression& typed_forward(const ElementwiseRow& row, std::span<const DType> inputs) {
  if (inputs.size() != row.inputs.size())
    throw UsageError(fmt::format("{}: takes {} input{} ({}), and was given {}", std::string_view(row.name),
                                 row.inputs.size(), row.inputs.size() == 1 ? "" : "s", fmt::join(row.inputs, ", "),
                                 inputs.size()));
  Entry& entry = Registry::instance().entry_of(row);
  static_assert(kDTypeCount <= 64);
  std::uint64_t key = 0;  // injective: at most kOperandsMax types of six bits
  for (DType type : inputs) key = key * 64 + static_cast<std::uint64_t>(type);
  {
    const std::lock_guard lock(entry.typed_mutex);
    if (const auto found = entry.typed.find(key); found != entry.typed.end()) return found->second;
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) check_dtype(row.dtypes, inputs[i], row.inputs[i]);
  const Expression& untyped = forward(entry);
  // Attributes are typed like the inputs, and have the type that the inputs compute in.
  const auto of_type = [&](DType attribute) {
    std::vector<DType> types(inputs.begin(), inputs.end());
    types.resize(row.inputs.size() + row.attributes.size(), attribute);
    return types;
  };
  const auto prepared = [&](DType attribute) {
    return row.result == Result::floating ? in_floats(untyped, inputs, attribute) : untyped;
  };
  const DType attribute = attribute_type(row, inputs), given = promoted(inputs);
  const DType meant = is_narrow(given) && (is_float(given) || row.result != Result::floating) ? given : attribute;
  Expression typed =
      scalar::typed(prepared(attribute), of_type(attribute), scalar::result_type(prepared(meant), of_type(meant)));
  const std::lock_guard lock(entry.typed_mutex);
  return entry.typed.try_emplace(key, std::move(typed)).first->second;
}

std::vector<double> checked_attributes(const ElementwiseRow& row, std::span<const double> values, DType type) {
  if (values.size() > row.attributes.size())
    throw UsageError(fmt::format("{}: takes at most {} attributes, and was given {}", std::string_view(row.name),
                                 row.attributes.size(), values.size()));
  std::vector<double> out;
  for (std::size_t i = 0; i < row.attributes.size(); ++i) {
    double value = i < values.size() ? values[i] : row.attributes[i].default_value;
    if (is_integer(type)) {
      const double lo = element(type).lowest, hi = element(type).highest;
      if (std::isinf(value)) value = value < 0 ? lo : hi;
      if (!(value >= lo && value <= hi && std::trunc(value) == value))
        throw UsageError(
            fmt::format("{}: {} = {} is not a number of type {}, in which these inputs compute; cast them to f32",
                        std::string_view(row.name), row.attributes[i].name, value, name_of(type)));
    }
    out.push_back(value);
  }
  return out;
}

const ReduceExpressions& expressions(const ReduceRow& row) {
  static const std::vector<ReduceExpressions> all = [] {
    std::vector<ReduceExpressions> out;
    for (const ReduceRow& each : reduce_rows()) {
      std::vector<std::string> pre = {"x"}, post = {"r", "n"};
      if (!each.center.empty()) pre.push_back("c"), post.push_back("c");
      for (const Attribute& attribute : each.attributes) {
        pre.emplace_back(attribute.name);
        post.emplace_back(attribute.name);
      }
      out.push_back({scalar::parse(each.pre, pre), scalar::parse(each.post, post)});
    }
    return out;
  }();
  return all[static_cast<std::size_t>(&row - reduce_rows().data())];
}

DType reduce_scalar_type(DType x) { return x == DType::f64 ? DType::f64 : DType::f32; }

ReduceTypes reduce_types(const ReduceRow& row, DType x) {
  check_dtype(row.dtypes, x, "x");
  if (!is_narrow(x)) return {x, typed_post(row, x).type()};
  const bool adds = row.reduction == scalar::Reduction::sum || row.reduction == scalar::Reduction::prod;
  // Sums of few bits are counted in 32, as the standard asks.
  const DType computed = is_integer(x) && adds && !element(x).is_signed ? DType::u32 : compute_type(x);
  const DType result = typed_post(row, computed).type();
  const bool keeps = result == computed && row.result != Result::integer && (is_float(x) || !adds);
  return {computed, keeps ? x : result};
}

scalar::Expression typed_pre(const ReduceRow& row, DType x) {
  check_dtype(row.dtypes, x, "x");
  std::vector<DType> types(static_cast<std::size_t>(expressions(row).pre.inputs), reduce_scalar_type(x));
  types[0] = x;
  Expression pre = expressions(row).pre;
  const bool adds = row.reduction == scalar::Reduction::sum || row.reduction == scalar::Reduction::prod;
  if (row.result == Result::floating && !is_float(x))
    pre = in_floats(pre, std::span(&x, 1), DType::f32);
  else if (adds && x == DType::boolean && row.result == Result::same)
    pre = in_floats(pre, std::span(&x, 1), DType::i32);
  return scalar::typed(pre, types);
}

scalar::Expression typed_post(const ReduceRow& row, DType x) {
  const bool finds = row.reduction == scalar::Reduction::argmax || row.reduction == scalar::Reduction::argmin;
  std::vector<DType> types(static_cast<std::size_t>(expressions(row).post.inputs), reduce_scalar_type(x));
  types[0] = finds ? DType::i32 : typed_pre(row, x).type();
  return scalar::typed(expressions(row).post, types);
}

const ElementwiseRow& register_elementwise(const CustomOp& op) {
  check_name(op, op.name);
  for (const std::string& alias : op.aliases) check_name(op, alias);
  std::vector<std::string> operands = op.inputs;
  for (const auto& attribute : op.attributes) operands.push_back(attribute.first);
  if (op.inputs.empty() || operands.size() > kOperandsMax)
    throw UsageError(fmt::format("register_op: {}: {} inputs and {} attributes; give 1 to {} in all, the inputs first",
                                 op.name, op.inputs.size(), op.attributes.size(), kOperandsMax));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    check_name(op, operands[i]);
    if (operands[i] == "output" || operands[i] == "g" ||
        std::find(operands.begin(), operands.begin() + static_cast<std::ptrdiff_t>(i), operands[i]) !=
            operands.begin() + static_cast<std::ptrdiff_t>(i))
      throw UsageError(
          fmt::format("register_op: {}: the operand name '{}' is taken; choose another", op.name, operands[i]));
  }
  if (op.gradients.size() > op.inputs.size() || op.aliases.size() > 4)
    throw UsageError(fmt::format("register_op: {}: give at most one gradient an input, and four aliases", op.name));
  if (find_reduce(op.name) != nullptr)
    throw UsageError(fmt::format("register_op: there is a reduction '{}' already; choose another name", op.name));

  // Every text is parsed before the op is added.
  const ElementwiseRow row = row_of(op);
  Result result = Result::same;
  try {
    const Expression forward = parse_forward(row);
    result = result_of(forward);
    for (std::size_t i = 0; i < op.gradients.size(); ++i)
      if (!op.gradients[i].empty()) parse_gradient(row, i, op.gradients[i]);
    if (op.gradients.size() < op.inputs.size()) scalar::gradient(forward);
  } catch (UsageError& error) {
    error.add_context("reading the texts of op '" + op.name + "'");
    throw;
  }
  return Registry::instance().add(op, result);
}

}  // namespace weft::ops
