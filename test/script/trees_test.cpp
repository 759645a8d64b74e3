// Component trees in scripts: one tree as model, data layout and workflow.
#include <gtest/gtest.h>

#include "script/run_script.hpp"

namespace weft::script {
namespace {

TEST(ScriptTrees, ModelsAreRenderedAgain) {
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::seconds(20);
  const Ran ran = run_script(R"js(
    import { h, Fragment, tree, optim, nn, compile, grad, tensor, manualSeed, ones } from "weft";
    const same = (a, b) => { if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(JSON.stringify(a) + " is not " + JSON.stringify(b)) };
    const refused = (f, part) => { try { f() } catch (e) { if (e.name === "UsageError" && e.message.includes(part)) return; throw e } throw new Error("was not refused") };
    const Layer = ({ from, to }) => h(Fragment, null, h("Linear", { key: "linear", inputs: from, outputs: to }), h("Tanh", null));
    const Block = ({ from, to }) => h("Sequential", null, h(Layer, { from, to }));
    const Model = ({ deep }) => h("Sequential", null, h(Block, { key: "first", from: 2, to: 4 }),
      deep && h(Block, { key: "second", from: 4, to: 4 }), h("Linear", { key: "out", inputs: 4, outputs: 1 }));
    same(tree.expand(h(Model, {})).children.map(({ type, props }) => [type, props.key]), [["Sequential", "first"], ["Linear", "out"]]);

    manualSeed(1);
    const model = tree.model(h(Model, { deep: false }));
    const optimizer = optim.adam(model, { learningRate: 0.05 });
    let traces = 0;
    const step = compile((x, y) => {
      ++traces;
      const loss = nn.mse(model(x), y);
      optimizer.step(grad(loss, optimizer));
      return loss;
    });
    const x = tensor([[0, 1], [1, 0], [1, 1]]), y = tensor([[1], [1], [0]]);
    for (let i = 0; i < 20; ++i) step(x, y);
    same(tree.render(model, h(Model, { deep: false })), []);
    step(x, y);
    same(traces, 1);                                     // an equal tree is a replay
    const before = model.namedParameters();
    const trained = before["first.linear.weight"].toArray();
    const edits = tree.render(model, h(Model, { deep: true }));
    same(edits.map(({ kind, path, to }) => [kind, path, to]), [["insert", "", 1]]);
    const after = model.namedParameters();
    same(Object.keys(after), ["first.linear.weight", "first.linear.bias", "second.linear.weight", "second.linear.bias", "out.weight", "out.bias"]);
    same(after["first.linear.weight"].toArray(), trained);
    same(model(x).shape, [3, 1]);
    step(x, y);
    same(traces, 2);
    if (JSON.stringify(after["out.weight"].toArray()) === JSON.stringify(trained)) throw new Error("the optimiser does not go on");

    const shallow = h(Model, { deep: false }), deep = h(Model, { deep: true });
    same(tree.apply(shallow, tree.difference(shallow, deep)), tree.expand(deep));
    refused(() => tree.model(h("Dense", null)), "Dense");
    refused(() => tree.model(h(Fragment, null)), "one element");
    refused(() => tree.model(h("Sequential", null, "text")), "text");
    refused(() => tree.model(h("Linear", { inputs: 1 << 20, outputs: 1 << 20 })), "at most");
    refused(() => tree.render(nn.linear(1, 1), shallow), "not a model");
    refused(() => tree.apply(shallow, [{ kind: "remove", path: "", from: 9 }]), "no place 9");
    same(model(x).shape, [3, 1]);
  )js",
                             options);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
}

TEST(ScriptTrees, ComponentsMakeLayoutsAndWorkflows) {
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::seconds(20);
  options.operations = {"tensor.*"};
  const Ran ran = run_script(R"js(
    import { h, tree, metatensor, workflow, tensor } from "weft";
    const same = (a, b) => { if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(JSON.stringify(a) + " is not " + JSON.stringify(b)) };
    const Weight = ({ name, rows, columns }) => h("Field", { name }, h("Tensor", { dtype: "f32", shape: [rows, columns] }));
    const Layout = ({ deep }) => h("Struct", null, h(Weight, { name: "first", rows: 2, columns: 4 }),
      deep && h(Weight, { name: "second", rows: 4, columns: 4 }), h(Weight, { name: "out", rows: 4, columns: 1 }));
    same(Object.keys(metatensor.schemaOf(h(Layout, { deep: true })).fields), ["first", "second", "out"]);
    const versions = [h(Layout, {}), h(Layout, { deep: true })];
    same(tree.difference(...versions).map(({ kind, to }) => [kind, to]), [["insert", 1]]);
    same(metatensor.difference(...versions.map(metatensor.schemaOf)).map(({ kind, path }) => [kind, path]), [["added", "second"]]);

    const Step = ({ id, of, name }) => h(workflow.Operation, { id, name, input: { x: of } });
    const Steps = () => h(workflow.Sequential, null, h(Step, { id: "a", of: "$.input.x", name: "tensor.exp" }),
      h(Step, { id: "b", of: "$.a.result", name: "tensor.log" }));
    same(workflow.check(h(Steps, null)), []);
    same((await workflow.run(h(Steps, null), { x: tensor([1, 2]) })).result.toArray().map((x) => +x.toFixed(4)), [1, 2]);
  )js",
                             options);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
}

}  // namespace
}  // namespace weft::script
