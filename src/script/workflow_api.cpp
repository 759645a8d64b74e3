// workflow: check and run trees of operations, which JSX may write.
#include <fmt/format.h>

#include <algorithm>

#include "script/loop.hpp"
#include "script/operations.hpp"
#include "weft/workflow.hpp"

namespace weft::script {
namespace {

namespace op = operations;

void check_granted(Engine& engine, const OperationsState& state, const workflow::Element& element) {
  if (element.type == workflow::Type::operation) require_granted(engine, state, element.operation);
  for (const workflow::Element& child : element.children) check_granted(engine, state, child);
}

/// A template from an element or from {inputSchema, onFailure, tree, ...}. Errors: UsageError; AccessError for operations that were
/// not granted.
workflow::Template template_of(Engine& engine, const OperationsState& state, JSValueConst value) {
  // An element may have components; the tree of a template has its element in a member.
  const bool is_element = JS_IsObject(value) && !JS_IsUndefined(engine.property(value, "type").get());
  Value given = is_element ? tree_from(engine, value) : value_from(engine, value);
  workflow::Template made = workflow::template_from(in_session(std::move(given), *state.outer));
  check_granted(engine, state, made.tree);
  return made;
}

// check(template): a list of {code, path, message}, empty if nothing is wrong.
Local check_workflow(Engine& engine, JSValueConst, Arguments arguments) {
  const OperationsState& state = operations_of(engine);
  Value::Array list;
  for (const workflow::Problem& each :
       workflow::check(template_of(engine, state, at(arguments, 0)), state.exchange->registry()))
    list.push_back(Value::object({{"code", each.code}, {"path", each.path}, {"message", each.message}}));
  return value_to(engine, list);
}

// run(template, input, {timeout}): a promise of the result.
Local run_workflow(Engine& engine, JSValueConst, Arguments arguments) {
  OperationsState& state = operations_of(engine);
  Options options(engine, at(arguments, 2), "workflow.run");
  const double timeout = options.number("timeout", 0);
  options.finish();
  workflow::RunOptions run;
  state.identity.scopes = state.exchange->registry().owner().scopes;  // what may be called is decided here
  run.call.identity = state.identity;
  if (timeout > 0)
    run.call.deadline =
        op::Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(std::min(timeout, 1e6) * 1000));
  workflow::Template made = template_of(engine, state, at(arguments, 0));
  Value input = JS_IsUndefined(at(arguments, 1)) ? Value(Value::Object()) : value_from(engine, arguments[1]);
  const auto answer = std::make_shared<Value>();
  return engine.loop->promise(
      [exchange = state.exchange, outer = state.outer, inner = state.inner, ending = engine.loop->ending,
       made = std::move(made), input = std::move(input), run, answer] {
        workflow::Run running = workflow::start(*exchange, made, in_session(input, *outer), run);
        std::optional<Value> result;
        while (!(result = running.get_until(op::Clock::now() + std::chrono::milliseconds(20))))
          if (*ending) running.abort();  // the script has ended
        *answer = in_session(std::move(*result), *inner);
      },
      [&engine, answer] { return value_to(engine, *answer); }, true);
}

}  // namespace

void define_workflow(Engine& engine) {
  Local space = engine.object();
  engine.method(space.get(), "check", native<check_workflow>, 1);
  engine.method(space.get(), "run", native<run_workflow>, 1);
  for (const workflow::Type type : {workflow::Type::operation, workflow::Type::sequential, workflow::Type::parallel,
                                    workflow::Type::conditional, workflow::Type::map}) {
    const std::string name(name_of(type));
    engine.set(space.get(), name.c_str(), engine.string(name));
  }
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "workflow", std::move(space));
}

}  // namespace weft::script
