// Expressions of templates.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"
#include "jinja/interpreter.hpp"

namespace weft::jinja {

using Kind = ExpressionKind;

Value Interpreter::evaluate(const Expression& node, const ScopePointer& scope) {
  const Level level;
  work();
  const auto part = [&](std::size_t i) { return evaluate(*node.parts[i], scope); };
  const auto binary = [&](Value (*operation)(const Value&, const Value&)) {
    const Value left = part(0), right = part(1);
    position_ = node.position;
    return operation(left, right);
  };
  switch (node.kind) {
    case Kind::constant: return node.constant;
    case Kind::name: return evaluate_name(node, scope);
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      items.reserve(node.parts.size());
      for (std::size_t i = 0; i < node.parts.size(); ++i) items.push_back(part(i));
      position_ = node.position;
      return node.kind == Kind::list ? Value::list(std::move(items)) : Value::tuple(std::move(items));
    }
    case Kind::dict: {
      auto dict = std::make_shared<Dict>();
      for (std::size_t i = 0; i < node.parts.size(); i += 2) {
        Value key = part(i), value = part(i + 1);
        position_ = node.position;
        dict->set(std::move(key), std::move(value));
      }
      return DictPointer(std::move(dict));
    }
    case Kind::positive:
    case Kind::negative: {
      const Value operand = part(0);
      position_ = node.position;
      return node.kind == Kind::negative ? negative(operand) : positive(operand);
    }
    case Kind::logical_not: return !truth(part(0));
    case Kind::logical_and: {
      Value left = part(0);
      return truth(left) ? part(1) : left;
    }
    case Kind::logical_or: {
      Value left = part(0);
      return truth(left) ? left : part(1);
    }
    case Kind::add: return binary(add);
    case Kind::subtract: return binary(subtract);
    case Kind::multiply: return binary(multiply);
    case Kind::divide: return binary(divide);
    case Kind::floor_divide: return binary(floor_divide);
    case Kind::modulo: return binary(modulo);
    case Kind::power: return binary(power);
    case Kind::concatenate: {
      TextBuilder out;
      for (std::size_t i = 0; i < node.parts.size(); ++i) out.append(*to_text(part(i)));
      return out.take();
    }
    case Kind::compare: return evaluate_compare(node, scope);
    case Kind::conditional:
      if (truth(part(1))) return part(0);
      if (node.parts[2]) return part(2);
      return Value::undefined("this inline if has no else, and its condition is false", "add an else");
    case Kind::attribute: {
      const Value object = part(0);
      position_ = node.position;
      return get_attribute(object, node.name);
    }
    case Kind::subscript: return evaluate_subscript(node, scope);
    case Kind::call: return evaluate_call(node, scope, nullptr);
    case Kind::filter: return evaluate_filter(node, scope, nullptr);
    case Kind::test: return evaluate_test(node, scope);
    case Kind::slice:
    case Kind::namespace_attribute: break;  // only in subscripts and targets
  }
  return Value();
}

Value Interpreter::evaluate_name(const Expression& node, const ScopePointer& scope) {
  if (const Value* found = scope->find(node.id)) return *found;
  if (auto function = find_function(node.name, context_)) return *function;
  return Value::undefined(fmt::format("{} is undefined", quote(node.name, 60)),
                          "pass it to the template, test it with 'is defined', or give a | default");
}

Value Interpreter::evaluate_compare(const Expression& node, const ScopePointer& scope) {
  Value left = evaluate(*node.parts[0], scope);
  for (std::size_t i = 0; i < node.operators.size(); ++i) {
    Value right = evaluate(*node.parts[i + 1], scope);
    position_ = node.position;
    bool holds = false;
    switch (node.operators[i]) {
      case CompareOperator::eq: holds = equal(left, right); break;
      case CompareOperator::ne: holds = !equal(left, right); break;
      case CompareOperator::lt: holds = compare(left, right, "<") < 0; break;
      case CompareOperator::le: holds = compare(left, right, "<=") <= 0; break;
      case CompareOperator::gt: holds = compare(left, right, ">") > 0; break;
      case CompareOperator::ge: holds = compare(left, right, ">=") >= 0; break;
      case CompareOperator::in: holds = contains(right, left); break;
      case CompareOperator::not_in: holds = !contains(right, left); break;
    }
    if (!holds) return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluate_subscript(const Expression& node, const ScopePointer& scope) {
  const Value object = evaluate(*node.parts[0], scope);
  const Expression& index = *node.parts[1];
  if (index.kind != Kind::slice) {
    const Value key = evaluate(index, scope);
    position_ = node.position;
    return get_item(object, key);
  }
  const auto bound = [&](std::size_t i) { return index.parts[i] ? evaluate(*index.parts[i], scope) : Value(); };
  const Value start = bound(0), stop = bound(1), step = bound(2);
  position_ = node.position;
  return get_slice(object, start, stop, step);
}

Arguments Interpreter::evaluate_arguments(const Expression& node, const ScopePointer& scope) {
  Arguments arguments;
  for (const Argument& argument : node.arguments) {
    Value value = evaluate(*argument.value, scope);
    position_ = node.position;
    switch (argument.kind) {
      case Argument::Kind::positional: arguments.positional.push_back(std::move(value)); break;
      case Argument::Kind::named: arguments.named.emplace_back(argument.name, std::move(value)); break;
      case Argument::Kind::star:
        for (Value& item : items_of(value)) arguments.positional.push_back(std::move(item));
        break;
      case Argument::Kind::double_star:
        if (!value.is_dict()) fail(fmt::format("** needs a dict, not {}", described(value)), "give a dict");
        for (const auto& [key, item] : value.dict()->items()) {
          const std::string name = require_text(key, "a key after **")->bytes;
          if (std::any_of(arguments.named.begin(), arguments.named.end(),
                          [&](const auto& a) { return a.first == name; }))
            fail(fmt::format("argument {} is given twice", quote(name, 40)), "keep one");
          arguments.named.emplace_back(name, item);
        }
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expression& node, const ScopePointer& scope, const Value* caller) {
  const Value callee = evaluate(*node.parts[0], scope);
  Arguments arguments = evaluate_arguments(node, scope);
  position_ = node.position;
  if (caller) {
    if (take_named(arguments, "caller")) fail("a call block gives the caller, and so does its call", "remove caller=");
    arguments.named.emplace_back("caller", *caller);
  }
  return call(callee, std::move(arguments));
}

Value Interpreter::evaluate_filter(const Expression& node, const ScopePointer& scope, const Value* body) {
  const Value subject = !node.parts[0]                                ? *body
                        : body && node.parts[0]->kind == Kind::filter ? evaluate_filter(*node.parts[0], scope, body)
                                                                      : evaluate(*node.parts[0], scope);
  const Arguments arguments = evaluate_arguments(node, scope);
  position_ = node.position;
  const FilterFunction filter = find_filter(node.name);
  if (!filter) fail_unknown(unknown_filter(node.name));
  return filter(subject, arguments);
}

Value Interpreter::evaluate_test(const Expression& node, const ScopePointer& scope) {
  const Value subject = evaluate(*node.parts[0], scope);
  const Arguments arguments = evaluate_arguments(node, scope);
  position_ = node.position;
  const TestFunction test = find_test(node.name);
  if (!test) fail_unknown(unknown_test(node.name));
  return test(subject, arguments);
}

}  // namespace weft::jinja
