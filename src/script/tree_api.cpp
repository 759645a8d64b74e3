// tree: component trees, their differences, and models that are rendered from them.
#include <fmt/format.h>

#include "script/engine.hpp"
#include "script/modules.hpp"
#include "weft/nn/tree_model.hpp"

namespace weft::script {
namespace {

Local expand(Engine& engine, JSValueConst, Arguments arguments) {
  return engine.call(engine.expand_function, JS_UNDEFINED, {at(arguments, 0)});
}
Local difference(Engine& engine, JSValueConst, Arguments arguments) {
  return value_to(engine, tree::to_value(tree::difference(tree_from(engine, at(arguments, 0)),
                                                          tree_from(engine, at(arguments, 1)))));
}
Local apply_edits(Engine& engine, JSValueConst, Arguments arguments) {
  return value_to(engine, tree::patched(tree_from(engine, at(arguments, 0)),
                                        tree::edits_from(value_from(engine, at(arguments, 1)))));
}

/// How many parameters a model of the script may have.
Extent parameters_max(const Engine& engine) {
  const std::uint64_t bytes = engine.options.device_memory_limit;
  return bytes ? static_cast<Extent>(bytes / 4) : kModuleWidthMax;
}

Local make_model(Engine& engine, JSValueConst, Arguments arguments) {
  auto model = std::make_shared<nn::TreeModel>(tree_from(engine, at(arguments, 0)), parameters_max(engine));
  nn::TreeModel* const raw = model.get();
  return wrap(engine, std::move(model), [raw](Engine& e, Arguments given) {
    e.count_work();
    return e.make((*raw)(e.tensor(at(given, 0), "tree.model: the input")));
  });
}
Local render_model(Engine& engine, JSValueConst, Arguments arguments) {
  const ModuleHandle* const handle = module_handle(engine, at(arguments, 0));
  auto* const model = handle ? dynamic_cast<nn::TreeModel*>(handle->module.get()) : nullptr;
  if (!model) Engine::refuse("tree.render", inspect(engine, at(arguments, 0)) + " is not a model of tree.model");
  return value_to(engine, tree::to_value(model->render(tree_from(engine, at(arguments, 1)))));
}

}  // namespace

Value tree_from(Engine& engine, JSValueConst element) {
  return value_from(engine, engine.call(engine.expand_function, JS_UNDEFINED, {element}).get());
}

void define_tree(Engine& engine) {
  Local space = engine.object();
  engine.method(space.get(), "expand", native<expand>, 1);
  engine.method(space.get(), "difference", native<difference>, 2);
  engine.method(space.get(), "apply", native<apply_edits>, 2);
  engine.method(space.get(), "model", native<make_model>, 1);
  engine.method(space.get(), "render", native<render_model>, 2);
  engine.checked(JS_FreezeObject(engine.context, space.get()));
  add_export(engine, "tree", std::move(space));
}

}  // namespace weft::script
