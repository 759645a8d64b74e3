// Every op of the table as a function and as a method of tensors: softmax(x, -1), x.softmax({axis: -1}). First the inputs, then
// the attributes in the order of the table, or by name in an object at the end.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/quote.hpp"
#include "catalogue/op_values.hpp"
#include "script/engine.hpp"
#include "script/functions.hpp"
#include "weft/custom_kernel.hpp"
#include "weft/ops.hpp"
#include "weft/ops/contraction.hpp"

namespace weft::script {
namespace {

using graph::AttributeSpec;
using graph::AttributeType;
using graph::AttributeValue;
using graph::OpRow;

constexpr int kInPlace = 0x4000;

std::string where_in(const OpRow& row, std::string_view name) { return fmt::format("{}: {}", row.name, name); }

bool is_number(JSValueConst value) { return JS_IsNumber(value) || JS_IsBool(value) || JS_IsBigInt(value); }

AttributeValue attribute_from(Engine& engine, const OpRow& row, const AttributeSpec& spec, JSValueConst value) {
  if (JS_IsNull(value)) {
    if (spec.default_value) return *spec.default_value;
    return std::monostate{};
  }
  const std::string what = where_in(row, spec.name);
  switch (spec.type) {
    case AttributeType::integer: return engine.integer(value, what);
    case AttributeType::number: return engine.number(value, what);
    case AttributeType::boolean:
      if (!JS_IsBool(value))
        throw UsageError(fmt::format("{} is {}, neither true nor false", what, inspect(engine, value)));
      return static_cast<bool>(JS_VALUE_GET_BOOL(value));
    case AttributeType::integers: return engine.extents(value, what);
    case AttributeType::numbers: {
      if (is_number(value)) return graph::Numbers{engine.number(value, what)};
      graph::Numbers numbers;
      const std::uint32_t count = engine.length(value, what, 4096);
      for (std::uint32_t i = 0; i < count; ++i) numbers.push_back(engine.number(engine.element(value, i).get(), what));
      return numbers;
    }
    case AttributeType::dtype: return engine.dtype(value);
    case AttributeType::choice:
      if (!JS_IsString(value)) throw UsageError(fmt::format("{} is {}, not a word", what, inspect(engine, value)));
      return engine.text(value);
    case AttributeType::pairs: break;
  }
  graph::Pairs pairs;
  const std::uint32_t count = engine.length(value, what, 64);
  for (std::uint32_t i = 0; i < count; ++i) {
    const Local pair = engine.element(value, i);
    const std::vector<Extent> two = engine.extents(pair.get(), what);
    if (two.size() != 2) throw UsageError(fmt::format("{} has {} numbers, not pairs of two", what, two.size()));
    pairs.emplace_back(two[0], two[1]);
  }
  return pairs;
}

void attributes_by_name(Engine& engine, const OpRow& row, JSValueConst object, graph::CaseAttributes& attributes) {
  JSPropertyEnum* names = nullptr;
  std::uint32_t count = 0;
  engine.checked(JS_GetOwnPropertyNames(engine.context, &names, &count, object, JS_GPN_STRING_MASK | JS_GPN_ENUM_ONLY));
  struct Free {
    JSContext* context;
    JSPropertyEnum* names;
    std::uint32_t count;
    ~Free() { JS_FreePropertyEnum(context, names, count); }
  } const free{engine.context, names, count};
  for (std::uint32_t i = 0; i < count; ++i) {
    const char* const text = JS_AtomToCString(engine.context, names[i].atom);
    if (!text) throw ScriptThrew{};
    const std::string name = snake(text);
    JS_FreeCString(engine.context, text);
    const Local value = engine.checked(JS_GetProperty(engine.context, object, names[i].atom));
    if (JS_IsUndefined(value.get())) continue;
    const AttributeSpec& spec = graph::attribute_of(row, name);
    attributes.emplace_back(spec.name, attribute_from(engine, row, spec, value.get()));
  }
}

graph::Tensors apply_row(Engine& engine, const OpRow& row, Arguments given) {
  engine.count_work();
  constexpr std::size_t kInputsMax = 4096;
  graph::Tensors inputs;
  std::vector<std::pair<std::size_t, double>> numbers;  // operands that are numbers, and their places
  std::optional<DType> common;
  Device device = default_device();
  const auto take = [&](JSValueConst value, const graph::InputSpec& spec) {
    if (is_number(value)) {
      numbers.emplace_back(inputs.size(), engine.number(value, where_in(row, spec.name)));
      inputs.emplace_back();
      return;
    }
    Tensor tensor = engine.tensor_or_none(value);
    if (!tensor.defined()) {
      if (JS_IsArray(value))
        tensor = tensor_from(engine, value, std::nullopt, std::nullopt, std::nullopt);
      else
        throw UsageError(fmt::format("{} is {}, not a tensor", where_in(row, spec.name), inspect(engine, value)));
    }
    common = common ? promote(*common, tensor.dtype()) : tensor.dtype();
    device = tensor.device();
    inputs.push_back(std::move(tensor));
  };
  std::size_t next = 0;
  for (const graph::InputSpec& spec : row.inputs) {
    const JSValueConst value = at(given, next);
    if (spec.repeated) {
      if (JS_IsArray(value)) {
        ++next;
        const std::uint32_t count = engine.length(value, where_in(row, spec.name), kInputsMax);
        for (std::uint32_t i = 0; i < count; ++i) take(engine.element(value, i).get(), spec);
      } else {
        // Tensors one after another.
        while (next < given.size() && (engine.tensor_handle(given[next]) || engine.variable_handle(given[next])))
          take(given[next++], spec);
      }
      break;
    }
    if (spec.optional && (engine.is_nullish(value) || engine.is_plain_object(value))) {
      if (engine.is_nullish(value)) ++next;
      inputs.emplace_back();
      continue;
    }
    if (next >= given.size()) throw UsageError(fmt::format("{}: input {} is missing", row.name, spec.name));
    ++next;
    take(value, spec);
  }
  while (!inputs.empty() && !inputs.back().defined() && (numbers.empty() || numbers.back().first + 1 != inputs.size()))
    inputs.pop_back();
  for (const auto& [place, number] : numbers) inputs[place] = operations::number_operand(number, common, device);
  graph::CaseAttributes attributes;
  for (std::size_t a = 0; next < given.size(); ++next) {
    const JSValueConst value = given[next];
    if (engine.is_plain_object(value)) {
      if (next + 1 != given.size()) throw UsageError(fmt::format("{}: attributes by name come last", row.name));
      attributes_by_name(engine, row, value, attributes);
      break;
    }
    if (a >= row.attributes.size()) {
      if (JS_IsUndefined(value)) continue;
      std::vector<std::string> known;
      for (const auto& input : row.inputs) known.push_back(input.name);
      for (const auto& spec : row.attributes) known.push_back(spec.name);
      throw UsageError(fmt::format("{}: {} arguments; it takes {}", row.name, given.size(), fmt::join(known, ", ")));
    }
    const AttributeSpec& spec = row.attributes[a++];
    if (!JS_IsUndefined(value)) attributes.emplace_back(spec.name, attribute_from(engine, row, spec, value));
  }
  return graph::apply(row, std::move(inputs), attributes);
}

Local results_of(Engine& engine, const OpRow& row, graph::Tensors results) {
  if (!row.several_outputs && results.size() == 1) return engine.make(std::move(results[0]));
  return engine.make_array(results);
}

JSValue op_function(JSContext* context, JSValueConst, int count, JSValueConst* arguments, int magic) {
  Engine& engine = Engine::of(context);
  try {
    const OpRow& row = *engine.rows[static_cast<std::size_t>(magic)];
    return results_of(engine, row, apply_row(engine, row, Arguments(arguments, static_cast<std::size_t>(count))))
        .release();
  } catch (...) {
    return engine.throw_current();
  }
}

JSValue op_method(JSContext* context, JSValueConst self, int count, JSValueConst* arguments, int magic) {
  Engine& engine = Engine::of(context);
  try {
    const OpRow& row = *engine.rows[static_cast<std::size_t>(magic & (kInPlace - 1))];
    JSValueConst few[8];
    std::vector<JSValueConst> many;
    Arguments all;
    const auto total = static_cast<std::size_t>(count) + 1;
    if (total <= std::size(few)) {
      few[0] = self;
      std::copy_n(arguments, count, few + 1);
      all = Arguments(few, total);
    } else {
      many.push_back(self);
      many.insert(many.end(), arguments, arguments + count);
      all = Arguments(many);
    }
    engine.tensor(self, "this");
    graph::Tensors results = apply_row(engine, row, all);
    if (!(magic & kInPlace)) return results_of(engine, row, std::move(results)).release();
    // x.add_(y): the handle gets another value of the same kind.
    const Tensor old = engine.tensor(self, "this");
    if (results[0].shape() != old.shape())
      throw ShapeError(fmt::format("{}_: the result is {}, and the tensor {}", row.name, results[0].shape().to_string(),
                                   old.shape().to_string()));
    if (results[0].dtype() != old.dtype()) results[0] = cast(results[0], old.dtype());
    if (VariableHandle* variable = engine.variable_handle(self))
      variable->value.assign(results[0]);
    else
      engine.tensor_handle(self)->value = results[0];
    return JS_DupValue(context, self);
  } catch (...) {
    return engine.throw_current();
  }
}

// dispatch(name, [inputs], {attributes}): an array of handles.
Local dispatch(Engine& engine, JSValueConst, Arguments arguments) {
  const OpRow& row = graph::op_row(engine.text(at(arguments, 0)));
  std::vector<Local> held;
  std::vector<JSValueConst> given;
  const std::uint32_t count = engine.length(at(arguments, 1), "dispatch: the inputs", 4096);
  const bool repeated = row.inputs.size() == 1 && row.inputs[0].repeated;
  for (std::uint32_t i = 0; i < count && !repeated; ++i) {
    held.push_back(engine.element(arguments[1], i));
    given.push_back(held.back().get());
  }
  if (repeated) given.push_back(arguments[1]);
  if (const JSValueConst attributes = at(arguments, 2); !engine.is_nullish(attributes)) {
    if (!engine.is_plain_object(attributes)) Engine::refuse("dispatch", "the attributes are not an object");
    while (given.size() < row.inputs.size()) given.push_back(JS_UNDEFINED);
    given.push_back(attributes);
  }
  return engine.make_array(apply_row(engine, row, Arguments(given)));
}

// einsum("ij,jk->ik", a, b)
Local einsum_text(Engine& engine, JSValueConst, Arguments arguments) {
  engine.count_work();
  std::vector<Tensor> operands;
  for (std::size_t i = 1; i < arguments.size(); ++i)
    operands.push_back(engine.tensor(arguments[i], "einsum: an operand"));
  return engine.make(weft::einsum(engine.text(at(arguments, 0)), operands));
}

}  // namespace

bool is_method(const graph::OpRow& row) { return !row.inputs.empty() && !row.inputs[0].repeated; }
bool has_in_place(const graph::OpRow& row) { return row.elementwise != nullptr; }

void define_row(Engine& engine, JSValueConst on, const std::string& name, std::size_t index, bool as_method) {
  const JSAtom atom = JS_NewAtom(engine.context, name.c_str());
  const int taken = as_method ? JS_HasProperty(engine.context, on, atom) : 0;  // shape, item, ... stay
  JS_FreeAtom(engine.context, atom);
  if (taken != 0) return;
  engine.checked(
      JS_DefinePropertyValueStr(engine.context, on, name.c_str(),
                                JS_NewCFunctionMagic(engine.context, as_method ? op_method : op_function, name.c_str(),
                                                     1, JS_CFUNC_generic_magic, static_cast<int>(index)),
                                JS_PROP_WRITABLE | JS_PROP_CONFIGURABLE));
}

std::vector<std::string> script_names(const graph::OpRow& row) {
  std::vector<std::string> names{row.name};
  names.insert(names.end(), row.aliases.begin(), row.aliases.end());
  for (std::size_t i = 0, count = names.size(); i < count; ++i)
    if (std::string other = camel(names[i]); std::find(names.begin(), names.end(), other) == names.end())
      names.push_back(std::move(other));
  return names;
}

Local function_of_row(Engine& engine, const graph::OpRow& row) {
  const auto found = std::find(engine.rows.begin(), engine.rows.end(), &row);
  const auto index = static_cast<std::size_t>(found - engine.rows.begin());
  if (found == engine.rows.end()) engine.rows.push_back(&row);
  return engine.checked(JS_NewCFunctionMagic(engine.context, op_function, row.name.c_str(), 1, JS_CFUNC_generic_magic,
                                             static_cast<int>(index)));
}

void define_ops(Engine& engine) {
  const Local tensors(engine.context, JS_GetClassProto(engine.context, engine.tensor_class));
  const Local variables(engine.context, JS_GetClassProto(engine.context, engine.variable_class));
  for (std::size_t i = 0; i < engine.rows.size(); ++i) {
    const OpRow& row = *engine.rows[i];
    if (is_of_script(row)) continue;
    for (const std::string& name : script_names(row)) {
      if (row.name != "einsum")
        add_export(engine, name.c_str(),
                   engine.checked(JS_NewCFunctionMagic(engine.context, op_function, name.c_str(), 1,
                                                       JS_CFUNC_generic_magic, static_cast<int>(i))));
      if (!is_method(row)) continue;
      for (const JSValueConst on : {tensors.get(), variables.get()}) {
        define_row(engine, on, name, i, true);
        if (has_in_place(row)) define_row(engine, on, name + "_", i | kInPlace, true);
      }
    }
  }
  add_function<einsum_text>(engine, "einsum", 2);
  add_function<dispatch>(engine, "dispatch", 2);
}

}  // namespace weft::script
