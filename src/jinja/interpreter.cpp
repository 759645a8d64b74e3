#include "jinja/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.hpp"
#include "jinja/arguments.hpp"

namespace weft::jinja {

using Kind = ExpressionKind;

const Value* Scope::find(NameId id) const {
  for (const Scope* scope = this; scope; scope = scope->parent.get())
    for (const auto& [name, value] : scope->variables)
      if (name == id) return &value;
  return nullptr;
}

void Scope::set(NameId id, Value value) {
  for (auto& [name, old] : variables) {
    if (name != id) continue;
    old = std::move(value);
    return;
  }
  charge.add(sizeof(variables[0]));
  variables.emplace_back(id, std::move(value));
}

/// Redirects output to a separate builder while it exists, and restores it also after a fault.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter),
        outer_(std::exchange(interpreter.out_, &out_)),
        was_at_top_(std::exchange(interpreter.at_top_, false)) {}
  ~Capture() {
    interpreter_.out_ = outer_;
    interpreter_.at_top_ = was_at_top_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value take() { return out_.take(); }

 private:
  Interpreter& interpreter_;
  TextBuilder out_;
  TextBuilder* outer_;
  bool was_at_top_;
};

// ---- Macros -----------------------------------------------------------------------------------------------------------

class Macro : public Object {
 public:
  Macro(Interpreter& interpreter, const Statement& node, std::string name, ScopePointer scope)
      : interpreter_(interpreter), node_(node), name_(std::move(name)), scope_(std::move(scope)) {}
  std::string_view type_name() const override { return "Macro"; }
  void represent(TextBuilder& out) const override {
    out.append("<Macro ");
    jinja::represent(Value(std::string_view(name_)), out);
    out.append(">");
  }
  bool callable() const override { return true; }
  std::optional<Value> attribute(std::string_view name) override {
    if (name == "name") return Value(std::string_view(name_));
    if (name == "caller") return Value(node_.uses_caller);
    if (name == "catch_kwargs") return Value(node_.uses_kwargs && !has("kwargs"));
    if (name == "catch_varargs") return Value(node_.uses_varargs && !has("varargs"));
    if (name != "arguments") return std::nullopt;
    std::vector<Value> names;
    for (const Parameter& parameter : node_.parameters) names.emplace_back(std::string_view(parameter.name));
    return Value::tuple(std::move(names));
  }
  Value call(Arguments&& arguments) override;

 private:
  bool has(std::string_view name) const {
    return std::any_of(node_.parameters.begin(), node_.parameters.end(),
                       [&](const Parameter& parameter) { return parameter.name == name; });
  }
  void bind(Arguments& arguments, const ScopePointer& scope);

  Interpreter& interpreter_;
  const Statement& node_;
  std::string name_;
  ScopePointer scope_;
  Charge charge_{sizeof(Macro)};
};

namespace {

// Sets a name, which the template's text need not contain.
void set_by_name(const Tree& tree, Scope& scope, std::string_view name, Value value) {
  const auto found = std::find(tree.names.begin(), tree.names.end(), name);
  if (found != tree.names.end()) scope.set(static_cast<NameId>(found - tree.names.begin()), std::move(value));
}

}  // namespace

void Macro::bind(Arguments& arguments, const ScopePointer& scope) {
  const std::string callee = fmt::format("the macro {}", quote(name_, 40));
  std::vector<const Parameter*> missing;
  const std::size_t count = node_.parameters.size(), given = std::min(arguments.positional.size(), count);
  bool found_caller = given == count && has("caller");
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = node_.parameters[i];
    std::optional<Value> value;
    if (i < given) {
      value = std::move(arguments.positional[i]);
    } else {
      value = take_named(arguments, parameter.name);
      found_caller = found_caller || parameter.name == "caller";
    }
    if (value) {
      scope->set(parameter.id, std::move(*value));
    } else {
      missing.push_back(&parameter);
    }
  }
  if (node_.uses_caller && !found_caller) {
    auto caller = take_named(arguments, "caller");
    if (!caller || caller->is_none())
      caller = Value::undefined(fmt::format("{} was called without a caller", callee), "use it in a {% call %} block");
    set_by_name(interpreter_.tree_, *scope, "caller", std::move(*caller));
  }
  if (node_.uses_kwargs && !has("kwargs")) {
    auto rest = std::make_shared<Dict>();
    for (auto& [name, value] : arguments.named) rest->set(std::string_view(name), std::move(value));
    set_by_name(interpreter_.tree_, *scope, "kwargs", DictPointer(std::move(rest)));
  } else if (!arguments.named.empty()) {
    fail(fmt::format("{} takes no argument called {}", callee, quote(arguments.named.front().first, 40)),
         "remove it, or add a parameter");
  }
  if (node_.uses_varargs && !has("varargs")) {
    const auto rest = arguments.positional.begin() + static_cast<std::ptrdiff_t>(given);
    set_by_name(interpreter_.tree_, *scope, "varargs", Value::tuple({rest, arguments.positional.end()}));
  } else if (arguments.positional.size() > count) {
    fail(fmt::format("{} is given {} arguments and takes {}", callee, arguments.positional.size(), count),
         "remove some, or add parameters");
  }
  for (const Parameter* parameter : missing) {
    Value value =
        parameter->default_value
            ? interpreter_.evaluate(*parameter->default_value, scope)
            : Value::undefined(fmt::format("parameter {} of {} was not given", quote(parameter->name, 40), callee),
                               "give it, or a default");
    scope->set(parameter->id, std::move(value));
  }
}

Value Macro::call(Arguments&& arguments) {
  const Level level;
  Interpreter::Capture capture(interpreter_);
  const auto scope = std::make_shared<Scope>(scope_);
  bind(arguments, scope);
  interpreter_.execute(node_.body, scope);
  return capture.take();
}

// ---- Loops ------------------------------------------------------------------------------------------------------------

/// `loop` inside a for: its position. Reads one item ahead only if needed.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(Interpreter& interpreter, const Statement& node, ScopePointer scope, std::unique_ptr<Iteration> iteration,
       std::optional<std::size_t> length, std::int64_t depth)
      : interpreter_(interpreter),
        node_(node),
        scope_(std::move(scope)),
        iteration_(std::move(iteration)),
        length_(length),
        depth_(depth) {}

  bool next(Value& item) {
    Value upcoming;
    if (ahead_) {
      upcoming = std::move(*ahead_);
      ahead_.reset();
    } else if (!fetch(upcoming)) {
      return false;
    }
    ++index_;
    before_ = std::exchange(current_, upcoming);
    item = std::move(upcoming);
    return true;
  }
  /// Drops references, which may lead back to the loop.
  void finish() { scope_.reset(); }

  std::string_view type_name() const override { return "LoopContext"; }
  void represent(TextBuilder& out) const override {
    out.append(fmt::format("<LoopContext {}/{}>", index_ + 1, const_cast<Loop*>(this)->total()));
  }
  std::optional<std::size_t> length() const override {
    return static_cast<std::size_t>(const_cast<Loop*>(this)->total());
  }
  bool callable() const override { return true; }
  Value call(Arguments&& arguments) override;
  std::optional<Value> attribute(std::string_view name) override;

 private:
  bool fetch(Value& item) {
    if (rest_position_ < rest_.size()) {
      item = rest_[rest_position_++];
      return true;
    }
    return iteration_->next(item);
  }
  bool has_next() {
    Value item;
    if (!ahead_ && fetch(item)) ahead_ = std::move(item);
    return ahead_.has_value();
  }
  std::int64_t total() {
    if (!length_) {
      for (Value item; iteration_->next(item);) rest_.push_back(std::move(item));
      length_ = rest_.size() + static_cast<std::size_t>(index_ + 1) + (ahead_ ? 1 : 0);
    }
    return static_cast<std::int64_t>(*length_);
  }
  Value method(Value (Loop::*body)(const Arguments&)) {
    class Method : public Object {
     public:
      Method(std::shared_ptr<Loop> loop, Value (Loop::*body)(const Arguments&)) : loop_(std::move(loop)), body_(body) {}
      std::string_view type_name() const override { return "method"; }
      bool callable() const override { return true; }
      Value call(Arguments&& arguments) override { return ((*loop_).*body_)(arguments); }

     private:
      std::shared_ptr<Loop> loop_;
      Value (Loop::*body_)(const Arguments&);
    };
    return ObjectPointer(std::make_shared<Method>(shared_from_this(), body));
  }
  Value cycle(const Arguments& arguments) {
    if (arguments.positional.empty() || !arguments.named.empty())
      fail("loop.cycle is given no items", "write loop.cycle('a', 'b')");
    return arguments.positional[static_cast<std::size_t>(index_) % arguments.positional.size()];
  }
  Value changed(const Arguments& arguments) {
    Value now = Value::tuple(arguments.positional);
    if (last_changed_ && equal(*last_changed_, now)) return false;
    last_changed_ = std::move(now);
    return true;
  }

  Interpreter& interpreter_;
  const Statement& node_;
  ScopePointer scope_;
  std::unique_ptr<Iteration> iteration_;
  std::optional<std::size_t> length_;
  std::int64_t depth_, index_ = -1;
  Value before_, current_;
  std::optional<Value> ahead_, last_changed_;
  std::vector<Value> rest_;  // read to learn the length
  std::size_t rest_position_ = 0;
};

std::optional<Value> Loop::attribute(std::string_view name) {
  if (name == "index") return Value(index_ + 1);
  if (name == "index0") return Value(index_);
  if (name == "first") return Value(index_ == 0);
  if (name == "last") return Value(!has_next());
  if (name == "length") return Value(total());
  if (name == "revindex") return Value(total() - index_);
  if (name == "revindex0") return Value(total() - index_ - 1);
  if (name == "depth") return Value(depth_ + 1);
  if (name == "depth0") return Value(depth_);
  if (name == "cycle") return method(&Loop::cycle);
  if (name == "changed") return method(&Loop::changed);
  if (name == "previtem")
    return index_ > 0 ? before_
                      : Value::undefined("loop.previtem: there is no item before the first", "test loop.first");
  if (name == "nextitem")
    return has_next() ? *ahead_ : Value::undefined("loop.nextitem: there is no item after the last", "test loop.last");
  return std::nullopt;
}

Value Loop::call(Arguments&& arguments) {
  if (!node_.recursive || !scope_)
    fail("loop is called, and the for loop is not recursive", "write {% for ... recursive %}");
  const Parameters p("loop", arguments, {"iterable"}, 1);
  const Level level;
  Interpreter::Capture capture(interpreter_);
  interpreter_.run_loop(node_, *p[0], scope_, depth_ + 1);
  return capture.take();
}

// ---- Statements -------------------------------------------------------------------------------------------------------

Interpreter::Interpreter(const Tree& tree, FunctionContext& context, std::size_t output_bytes)
    : tree_(tree), context_(context), output_bytes_(output_bytes), root_(std::make_shared<Scope>(nullptr)) {
  const auto found = std::find(tree.names.begin(), tree.names.end(), "loop");
  if (found != tree.names.end()) loop_name_ = static_cast<NameId>(found - tree.names.begin());
}

Interpreter::~Interpreter() {
  for (const ScopePointer& scope : captured_) scope->variables.clear();
  root_->variables.clear();
}

void Interpreter::define(std::string_view name, Value value) { set_by_name(tree_, *root_, name, std::move(value)); }

TextBuilder Interpreter::run() {
  TextBuilder out;
  out_ = &out;
  execute(tree_.body, std::make_shared<Scope>(root_));
  out_ = nullptr;
  return out;
}

void Interpreter::write(const Value& value) {
  out_->append(*to_text(value));
  if (at_top_ && out_->size() > output_bytes_)
    fail(fmt::format("the output is longer than {} bytes, its limit", output_bytes_), "shorten the messages");
}

Interpreter::Flow Interpreter::execute(const Block& block, const ScopePointer& scope) {
  const Level level;
  for (const auto& statement : block) {
    const Flow flow = execute(*statement, scope);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::execute(const Statement& node, const ScopePointer& scope) {
  position_ = node.position;
  work();
  switch (node.kind) {
    case StatementKind::data: write(Value(node.data)); return Flow::on;
    case StatementKind::print: {
      const Value value = evaluate(*node.expression, scope);
      position_ = node.position;
      write(value);
      return Flow::on;
    }
    case StatementKind::condition: return execute_condition(node, scope);
    case StatementKind::loop: return execute_loop(node, scope);
    case StatementKind::set: {
      check_namespaces(*node.target, scope);
      Value value = evaluate(*node.expression, scope);
      position_ = node.position;
      assign(*node.target, std::move(value), scope);
      return Flow::on;
    }
    case StatementKind::with: {
      const auto inner = std::make_shared<Scope>(scope);
      for (std::size_t i = 0; i < node.targets.size(); ++i)
        assign(*node.targets[i], evaluate(*node.values[i], scope), inner);
      return execute(node.body, inner);
    }
    case StatementKind::macro: scope->set(node.id, make_macro(node, node.name, scope)); return Flow::on;
    case StatementKind::call_block: execute_call_block(node, scope); return Flow::on;
    case StatementKind::generation: return execute(node.body, std::make_shared<Scope>(scope));
    case StatementKind::set_block:
    case StatementKind::filter_block: return execute_captured(node, scope);
    case StatementKind::break_loop: return Flow::break_loop;
    case StatementKind::continue_loop: return Flow::continue_loop;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::execute_condition(const Statement& node, const ScopePointer& scope) {
  for (const auto& branch : node.branches)
    if (truth(evaluate(*branch.test, scope))) return execute(branch.body, scope);
  return execute(node.otherwise, scope);
}

Interpreter::Flow Interpreter::execute_loop(const Statement& node, const ScopePointer& scope) {
  const Value iterable = evaluate(*node.expression, scope);
  position_ = node.position;
  return run_loop(node, iterable, scope, 0);
}

Interpreter::Flow Interpreter::run_loop(const Statement& node, const Value& iterable, const ScopePointer& scope,
                                        std::int64_t depth) {
  // Walks the items that pass the loop's test. The test has its own variables: `loop` in it is that of an outer loop.
  class Filtered : public Iteration {
   public:
    Filtered(Interpreter& interpreter, const Statement& node, std::unique_ptr<Iteration> items, ScopePointer scope)
        : interpreter_(interpreter), node_(node), items_(std::move(items)), scope_(std::move(scope)) {}
    bool next(Value& item) override {
      while (items_->next(item)) {
        Budget::current()->iteration();
        const auto inner = std::make_shared<Scope>(scope_);
        interpreter_.assign(*node_.target, item, inner);
        if (truth(interpreter_.evaluate(*node_.test, inner))) return true;
      }
      return false;
    }

   private:
    Interpreter& interpreter_;
    const Statement& node_;
    std::unique_ptr<Iteration> items_;
    ScopePointer scope_;
  };

  auto items = iterate(iterable);
  auto length = length_of(iterable);
  if (node.test) {
    items = std::make_unique<Filtered>(*this, node, std::move(items), scope);
    length.reset();
  }
  const auto loop = std::make_shared<Loop>(*this, node, scope, std::move(items), length, depth);
  struct Finish {
    Loop& loop;
    ~Finish() { loop.finish(); }
  } finish{*loop};
  bool went_through = false;  // a turn reached its end, without break or continue, as in Jinja2
  for (Value item; loop->next(item);) {
    Budget::current()->iteration();
    const auto inner = std::make_shared<Scope>(scope);
    if (loop_name_ >= 0) inner->set(loop_name_, ObjectPointer(loop));
    position_ = node.position;
    assign(*node.target, std::move(item), inner);
    const Flow flow = execute(node.body, inner);
    if (flow == Flow::break_loop) break;
    if (flow == Flow::on) went_through = true;
  }
  if (went_through || node.otherwise.empty()) return Flow::on;
  return execute(node.otherwise, std::make_shared<Scope>(scope));
}

// A block whose output is a value: {% set x %} and {% filter f %}.
Interpreter::Flow Interpreter::execute_captured(const Statement& node, const ScopePointer& scope) {
  const auto inner = std::make_shared<Scope>(scope);
  Value value;
  {
    Capture capture(*this);
    const Flow flow = execute(node.body, inner);
    if (flow != Flow::on) return flow;
    value = capture.take();
  }
  if (node.expression) value = evaluate_filter(*node.expression, inner, &value);
  position_ = node.position;
  if (node.kind == StatementKind::filter_block) {
    write(value);
    return Flow::on;
  }
  check_namespaces(*node.target, scope);
  assign(*node.target, std::move(value), scope);
  return Flow::on;
}

Value Interpreter::make_macro(const Statement& node, std::string name, const ScopePointer& scope) {
  if (captured_.empty() || captured_.back() != scope) captured_.push_back(scope);
  return ObjectPointer(std::make_shared<Macro>(*this, node, std::move(name), scope));
}

void Interpreter::execute_call_block(const Statement& node, const ScopePointer& scope) {
  const Value caller = make_macro(node, "caller", scope);
  const Value result = evaluate_call(*node.expression, scope, &caller);
  position_ = node.position;
  write(result);
}

void Interpreter::check_namespaces(const Expression& target, const ScopePointer& scope) {
  if (target.kind == Kind::namespace_attribute) {
    const Value* found = scope->find(target.id);
    if (!found || !found->object_as<Namespace>()) {
      position_ = target.position;
      fail(fmt::format("{} is not a namespace, and only attributes of namespaces can be set", quote(target.name, 40)),
           fmt::format("begin with {{% set {} = namespace() %}}", target.name));
    }
  }
  for (const auto& part : target.parts) check_namespaces(*part, scope);
}

void Interpreter::assign(const Expression& target, Value value, const ScopePointer& scope) {
  if (target.kind == Kind::name) return scope->set(target.id, std::move(value));
  if (target.kind == Kind::namespace_attribute) {
    const Value* found = scope->find(target.id);
    if (const auto space = found ? found->object_as<Namespace>() : nullptr)
      space->set(target.attribute, std::move(value));
    return;
  }
  const auto items = items_of(value);
  if (items.size() != target.parts.size())
    fail(fmt::format("{} holds {} items, and {} names take them", described(value), items.size(), target.parts.size()),
         "give as many names as there are items");
  for (std::size_t i = 0; i < items.size(); ++i) assign(*target.parts[i], items[i], scope);
}

}  // namespace weft::jinja
