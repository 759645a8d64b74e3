// The functions that every template has: range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
#include <fmt/format.h>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"
#include "jinja/library.hpp"

namespace weft::jinja {
namespace {

class Function : public Object {
 public:
  using Body = Value (*)(const Arguments& arguments, FunctionContext& context);
  Function(std::string_view name, Body body, FunctionContext& context) : name_(name), body_(body), context_(context) {}
  std::string_view type_name() const override { return "function"; }
  void represent(TextBuilder& out) const override { out.append(fmt::format("<function {}>", name_)); }
  bool callable() const override { return true; }
  Value call(Arguments&& arguments) override { return body_(arguments, context_); }
  bool equals(const Object& other) const override {
    const auto* function = dynamic_cast<const Function*>(&other);
    return function && function->body_ == body_;
  }

 private:
  std::string_view name_;
  Body body_;
  FunctionContext& context_;
};

// A method of an object that keeps state.
class StateMethod : public Object {
 public:
  StateMethod(ObjectPointer self, Value (*body)(Object&)) : self_(std::move(self)), body_(body) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Value call(Arguments&& arguments) override {
    Parameters("this method", arguments, {});
    return body_(*self_);
  }
  int depth() const override { return checked_depth(self_->depth() + 1); }

 private:
  ObjectPointer self_;
  Value (*body_)(Object&);
};

Value make_range(const Arguments& arguments, FunctionContext&) {
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1, Parameters::Names::refused);
  const std::int64_t first = p.integer(0, 0);
  const bool alone = !p.given(1);
  return ObjectPointer(std::make_shared<Range>(alone ? 0 : first, alone ? first : p.integer(1, 0), p.integer(2, 1)));
}

// dict(mapping or pairs, name=value, ...).
void fill(Dict& dict, const Arguments& arguments, std::string_view callee) {
  if (arguments.positional.size() > 1) fail(fmt::format("{} takes one dict and named values", callee));
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional.front();
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict()->items()) dict.set(key, value);
    } else {
      for (const Value& pair : items_of(source)) {
        auto parts = items_of(pair);
        if (parts.size() != 2) fail(fmt::format("{}: an item is not a pair", callee), "give (key, value) pairs");
        dict.set(std::move(parts[0]), std::move(parts[1]));
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.set(std::string_view(name), value);
}

Value make_dict(const Arguments& arguments, FunctionContext&) {
  auto dict = std::make_shared<Dict>();
  fill(*dict, arguments, "dict");
  return DictPointer(std::move(dict));
}

Value make_namespace(const Arguments& arguments, FunctionContext& context) {
  Dict initial;
  fill(initial, arguments, "namespace");
  auto made = std::make_shared<Namespace>();
  for (const auto& [key, value] : initial.items()) made->set(require_text(key, "a name of namespace")->bytes, value);
  context.namespaces.push_back(made);
  return ObjectPointer(std::move(made));
}

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(Value::tuple(std::move(items))) {}
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "current") return current();
    if (name == "items") return items_;
    if (name == "pos") return Value(static_cast<std::int64_t>(position_));
    if (name == "next") return method([](Object& self) { return static_cast<Cycler&>(self).next(); });
    if (name == "reset") return method([](Object& self) { return static_cast<Cycler&>(self).reset(); });
    return std::nullopt;
  }
  int depth() const override { return items_.depth() + 1; }

 private:
  Value method(Value (*body)(Object&)) {
    return ObjectPointer(std::make_shared<StateMethod>(shared_from_this(), body));
  }
  Value current() const { return items_.sequence()->items[position_]; }
  Value next() {
    Value item = current();
    position_ = (position_ + 1) % items_.sequence()->items.size();
    return item;
  }
  Value reset() {
    position_ = 0;
    return Value();
  }

  Value items_;
  std::size_t position_ = 0;
};

Value make_cycler(const Arguments& arguments, FunctionContext&) {
  if (arguments.positional.empty() || !arguments.named.empty())
    fail("cycler is given no items", "write cycler('a', 'b')");
  return ObjectPointer(std::make_shared<Cycler>(arguments.positional));
}

// Returns "" at its first call and the separator afterwards.
class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value call(Arguments&& arguments) override {
    Parameters("the joiner", arguments, {});
    if (used_) return separator_;
    used_ = true;
    return Value(std::string_view());
  }
  int depth() const override { return separator_.depth() + 1; }

 private:
  Value separator_;
  bool used_ = false;
};

Value make_joiner(const Arguments& arguments, FunctionContext&) {
  const Parameters p("joiner", arguments, {"sep"});
  return ObjectPointer(std::make_shared<Joiner>(p.given(0) ? *p[0] : Value(std::string_view(", "))));
}

Value raise_exception(const Arguments& arguments, FunctionContext&) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  constexpr std::size_t kMessageMax = 2000;
  fail(fmt::format("the template refuses its input: {}", to_text(*p[0])->bytes.substr(0, kMessageMax)),
       "give it the messages that it asks for");
}

Value strftime_now(const Arguments& arguments, FunctionContext& context) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  const TextPointer format = p.text(0);
  constexpr std::size_t kFormatMax = 1000, kResultMax = 1 << 20;
  if (format->bytes.size() > kFormatMax)
    fail(fmt::format("strftime_now: the format is longer than {} bytes", kFormatMax), "shorten it");
  // As Python formats a time without fraction and zone: C has no %f, and would use the machine's zone.
  std::string pattern;
  for (std::size_t i = 0; i < format->bytes.size(); ++i) {
    const char c = format->bytes[i], next = i + 1 < format->bytes.size() ? format->bytes[i + 1] : '\0';
    if (c == '%' && (next == 'f' || next == 'z' || next == 'Z')) {
      if (next == 'f') pattern += "000000";
      ++i;
    } else if (c == '%' && next != '\0') {
      pattern += c;
      pattern += next;
      ++i;
    } else {
      pattern += c;
    }
  }
  if (pattern.empty()) return Value(std::string_view());
  pattern += ' ';  // an empty result must differ from a buffer too small
  std::string out(4096, '\0');
  std::size_t length = 0;
  while ((length = std::strftime(out.data(), out.size(), pattern.c_str(), &context.now)) == 0) {
    if (out.size() >= kResultMax) fail("strftime_now: the result is too long", "shorten the format");
    out.resize(out.size() * 2);
  }
  out.resize(length - 1);
  return make_text(out, !format->user.empty());
}

}  // namespace

void Namespace::represent(TextBuilder& out) const {
  const Level level;
  out.append("<Namespace {");
  bool first = true;
  for (const auto& [name, value] : attributes_.items()) {
    if (!first) out.append(", ");
    first = false;
    jinja::represent(name, out);
    out.append(": ");
    jinja::represent(value, out);
  }
  out.append("}>");
}
std::optional<Value> Namespace::attribute(std::string_view name) {
  const Value* found = attributes_.find(name);
  return found ? std::optional<Value>(*found) : std::nullopt;
}
void Namespace::set(std::string_view name, Value value) { attributes_.set(name, std::move(value)); }

std::optional<Value> find_function(std::string_view name, FunctionContext& context) {
  struct Row {
    std::string_view name;
    Function::Body body;
  };
  static constexpr Row kFunctions[] = {
      {"range", make_range},          {"dict", make_dict},     {"namespace", make_namespace},
      {"cycler", make_cycler},        {"joiner", make_joiner}, {"raise_exception", raise_exception},
      {"strftime_now", strftime_now},
  };
  for (const Row& row : kFunctions)
    if (row.name == name) return ObjectPointer(std::make_shared<Function>(row.name, row.body, context));
  return std::nullopt;
}

}  // namespace weft::jinja
