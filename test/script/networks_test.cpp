// Volumetric networks and metatensor files in scripts.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "base/temporary_folder.hpp"
#include "script/run_script.hpp"
#include "weft/evolve.hpp"
#include "weft/grid.hpp"
#include "weft/metatensor.hpp"
#include "weft/ops.hpp"

namespace weft::script {
namespace {

constexpr const char* kSame = R"js(
    import * as weft from "weft";
    const { tensor, ones, zeros, grid, metatensor, optim, nn, compile, grad, manualSeed, h } = weft;
    const same = (a, b) => { if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(JSON.stringify(a) + " is not " + JSON.stringify(b)) };
    const refused = (f, name, part) => {
      try { f() } catch (e) { same(e.name, name); if (!e.message.includes(part)) throw new Error(e.message); return }
      throw new Error("was not refused: " + part);
    };
)js";

struct ScriptFiles : testing::Test {
  test::TemporaryFolder folder;
  ScriptFiles() { std::ofstream(folder.path() / "broken.metatensor") << "not a file of tensors"; }
  Ran run(const std::string& text) {
    IsolateOptions options = small_limits();
    options.time_limit = std::chrono::seconds(20);
    options.read_folders = options.write_folders = {folder.path()};
    return run_script(kSame + ("const folder = \"" + folder.path().string() + "\";\n") + text, options);
  }
};

TEST_F(ScriptFiles, NetworksAreModules) {
  const Ran ran = run(R"js(
    manualSeed(1);
    const net = grid.mlp([2, 8, 1], "tanh");
    net.initialize(5);
    same(net.parameterCount, 24);
    const x = weft.rand([32, 2], -1, 1, { seed: 3 }).eval(), y = x.amax([1], true).eval();
    const before = net(x).toArray();
    same(grid.network(grid.describe(net)).parameterCount, 24);
    same(grid.pass(net, x).layers.map(({ path }) => path), ["0,0,0,0", "0,0,0,1"]);
    same(grid.pass(net, x).output.toArray(), before);

    // A compiled step, and the optimiser's reset.
    const optimizer = optim.adam(net, { learningRate: 0.02 });
    const step = compile((a, b) => {
      const loss = nn.mse(net(a), b);
      optimizer.step(grad(loss, optimizer));
      return loss;
    });
    const first = step(x, y).item();
    for (let i = 0; i < 100; ++i) step(x, y);
    if (!(step(x, y).item() < first / 4)) throw new Error("it does not learn");
    optimizer.reset();
    same(optimizer.stepCount, 0);

    // Every type of numbers goes through files.
    for (const type of ["f32", "int8", "binary"]) {
      grid.morph(net, type);
      grid.save(net, folder + "/net.safetensors");
      same(grid.load(folder + "/net.safetensors")(x).toArray(), net(x).toArray());
    }
    grid.morph(net, "int4", [0, 0, 0, 1]);
    same(grid.describe(net).layers.map(({ dtype }) => dtype), ["binary", "int4"]);
    if (!(grid.memory(net).packedBytes < grid.memory(net).masterBytes)) throw new Error("it is not smaller");
    grid.morph(net, "f32");

    // By the clock, and part by part.
    const mesh = grid.systolic(net);
    same(mesh.output(), null);
    mesh.setInput(x);
    mesh.ticks(2);
    same(mesh.output().toArray(), net(x).toArray());
    const writer = grid.network(grid.build("transformer", { vocabulary: 11, width: 16, hidden: 32, heads: 4, keyHeads: 2 }));
    const stream = grid.stream(writer), ids = tensor([[1, 2, 3, 4]], { dtype: "i32" });
    stream.next(tensor([[1, 2, 3]], { dtype: "i32" }));
    const last = stream.next(tensor([[4]], { dtype: "i32" })), whole = writer(ids);
    if (!(last.get(0, 0).sub(whole.get(0, 3)).abs().amax().item() < 1e-4)) throw new Error("a stream is not a pass");

    const target = grid.targetPropagation(grid.mlp([2, 1]), { mode: "gap", learningRate: 0.3 });
    const gap = () => target.step(x, x.get(null, [0, 1]))[0].gap.item();
    const gap0 = gap();
    for (let i = 0; i < 50; ++i) gap();
    if (!(gap() < gap0 / 2)) throw new Error("targets are not met");

    refused(() => grid.network({ layers: [{ type: "dense", inputs: 2 }] }), "UsageError", "/layers/0/outputs");
    refused(() => grid.build("mlp", { width: [1] }), "UsageError", "width");
    refused(() => grid.describe(nn.linear(1, 1)), "UsageError", "not a network");
    refused(() => mesh.next(x), "UsageError", "no method next");
    refused(() => grid.mlp([16384, 16384]), "DeviceMemoryError", "parameters");
    refused(() => grid.save(net, "/tmp/elsewhere.safetensors"), "AccessError", "");
    refused(() => grid.load("/etc/passwd"), "AccessError", "");
  )js");
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
}

TEST_F(ScriptFiles, NetworksEvolveAsInCpp) {
  const Ran ran = run(R"js(
    const a = grid.mlp([2, 8, 1], "tanh"), b = grid.clone(a);
    a.initialize(1);
    b.initialize(2);
    const x = tensor([[0.5, -0.25], [1, 2]]);
    const { overall, layers } = grid.compare(a, b);
    console.log(overall.toFixed(6), layers.length, grid.compare(a, a).overall > 0.999);
    same(grid.dna(a).map(({ at, direction }) => [at, direction.shape]), [["0,0,0,0", [16]], ["0,0,0,1", [8]]]);
    console.log(grid.splice(a, b, { mode: "point", splitRatio: 0.25 })(x).toArray().flat().join(" "));
    console.log(grid.mutate(a, { amount: 0.5, seed: 7 })(x).toArray().flat().join(" "));
    const population = grid.population(a, { size: 8, seed: 3, mutation: { amount: 0.3, node: 0, addLink: 0 } });
    const fitness = (network) => -nn.mse(network(x), tensor([[0.75], [-1]])).item();
    const generations = Array.from({ length: 5 }, () => population.evolve(fitness));
    if (!(generations[4].best >= generations[0].best)) throw new Error("it does not evolve");
    same(fitness(population.best()), generations[4].best);
    refused(() => population.evolve(() => "good"), "UsageError", "fitness");
    refused(() => population.evolve(3), "UsageError", "not a function");
    refused(() => grid.population(a, { size: 1e9 }), "UsageError", "device memory");
    refused(() => grid.splice(a, b, { splitRatio: 2 }), "UsageError", "split_ratio");
    refused(() => grid.splice(a, b, { ratio: 2 }), "UsageError", "ratio");
  )js");
  ASSERT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
  grid::Network a(grid::mlp({2, 8, 1}, grid::Activation::tanh)), b(grid::mlp({2, 8, 1}, grid::Activation::tanh));
  a.initialize(1);
  b.initialize(2);
  const Tensor x = tensor({{0.5f, -0.25f}, {1.0f, 2.0f}});
  char expected[64];
  std::snprintf(expected, sizeof expected, "%.6f 2 true\n",
                evolve::compare(evolve::extract_dna(a), evolve::extract_dna(b)).overall);
  EXPECT_EQ(ran.printed.substr(0, ran.printed.find('\n') + 1), expected);
  std::istringstream lines(ran.printed.substr(ran.printed.find('\n') + 1));
  for (const auto& network : {evolve::splice(a, b, {.mode = evolve::SpliceMode::point, .split_ratio = 0.25}),
                              evolve::mutate(a, {.amount = 0.5, .seed = 7})}) {
    const std::vector<float> wanted = (*network)(x).to_vector<float>();
    for (const float each : wanted) {
      double got = 0;
      lines >> got;
      EXPECT_FLOAT_EQ(static_cast<float>(got), each);
    }
  }
}

TEST_F(ScriptFiles, MetatensorFilesAreThoseOfCpp) {
  const Ran ran = run(R"js(
    const layout = { "TypeDef:Struct": true, properties: {
      label: { "TypeDef:Enum": true, enum: ["cat", "dog"] }, pixels: { "TypeDef:Tensor": { dtype: "f32", shape: [2, 2] } } } };
    metatensor.save(folder + "/small.metatensor", {
      tensors: { "layers.0.weight": tensor([[1, 2], [3, 4]]), "layers.0.bias": ones([2]) },
      records: { samples: { layout, values: [{ label: "cat", pixels: zeros([2, 2]) }, { label: "dog", pixels: ones([2, 2]) }] } },
      blobs: { notes: ["a note", new Uint8Array([1, 2, 255])] },
      optional: ["layers.0.bias"],
      metadata: { by: "a script" },
    });
    same(metatensor.validate(folder + "/small.metatensor"), []);
    const file = metatensor.open(folder + "/small.metatensor");
    same(file.paths.toSorted(), ["layers.0.bias", "layers.0.weight", "notes", "samples"]);
    same(file.metadata, { by: "a script" });
    same(file.tensor("layers.0.weight").toArray(), [[1, 2], [3, 4]]);
    same(file.count("samples"), 2);
    same(file.record("samples", 1).label, "dog");
    same(file.column("samples", "pixels").toArray(), [[[0, 0], [0, 0]], [[1, 1], [1, 1]]]);
    same(file.column("samples", "pixels", 1).shape, [1, 2, 2]);
    same([...file.bytes("notes.1")], [1, 2, 255]);
    same(file.schema.fields.layers.fields["0"].fields.bias.optional, true);

    // Versions of a schema as trees.
    const Model = (...fields) => metatensor.schemaOf(h("Struct", null, ...fields.map(([name, shape]) =>
      h("Field", { name }, h("Tensor", { dtype: "f32", shape })))));
    same(metatensor.difference(Model(["a", [2]], ["b", [3]]), Model(["a", [4]], ["c", [1]])).map(({ kind, path }) => [kind, path]),
         [["changed", "a"], ["removed", "b"], ["added", "c"]]);

    const content = (tensors) => () => metatensor.save(folder + "/bad.metatensor", { tensors });
    refused(content({ a: ones([1]), "a.b": ones([1]) }), "UsageError", "a.b");
    refused(content({ __a: ones([1]) }), "UsageError", "__a");
    refused(content({ a: 3 }), "UsageError", "a");
    refused(() => metatensor.save(folder + "/bad.metatensor", { tensor: {} }), "UsageError", "tensor");
    refused(() => metatensor.save(folder + "/bad.metatensor",
      { records: { s: { layout, values: [{ label: "bird", pixels: zeros([2, 2]) }] } } }), "WeftError", "label");
    refused(() => file.tensor("layers.1.weight"), "FileError", "layers.1.weight");
    refused(() => file.record("samples", 2), "FileError", "2");
    refused(() => metatensor.open(folder + "/broken.metatensor"), "FileError", "");
    refused(() => metatensor.open("/etc/passwd"), "AccessError", "");
    refused(() => metatensor.save("/tmp/elsewhere.metatensor", {}), "AccessError", "");
    if (weft.files.exists(folder + "/bad.metatensor")) throw new Error("a file that was refused is there");
    if (metatensor.validate(folder + "/broken.metatensor").length === 0) throw new Error("broken, and no rule says so");
  )js");
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
  const metatensor::File file = metatensor::File::open(folder.path() / "small.metatensor");
  EXPECT_EQ(file.tensor("layers.0.weight").to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(file.record("samples", 0).at("label").string(), "cat");
}

TEST_F(ScriptFiles, MemoriesFindTextsAgain) {
  const Ran ran = run(R"js(
    const { memory } = weft;
    const notes = memory.store(2);
    const east = notes.add("east", [1, 0], { namespace: "directions", metadata: { n: 1 } });
    notes.add("north", tensor([0, 1]), { id: "n" });
    notes.add("north-east", new Float32Array([1, 1.1]));
    same(notes.size, 3);
    same(notes.search([0.1, 1]).map(({ text }) => text), ["north", "north-east", "east"]);
    same(notes.search([0.1, 1], { namespace: "directions" }).map(({ id, metadata }) => [id, metadata]), [[east, { n: 1 }]]);
    same(notes.search([0.1, 1], { where: { n: 2 } }), []);
    const words = (text) => text.trim().split(/\s+/).length;
    same(notes.recall([0, 1], { tokens: 4, count: words }).text, "[1] north\n[2] north-east\n");
    same(notes.recall([0, 1], { tokens: 3, count: words }).matches.length, 1);
    notes.save(folder + "/notes.metatensor");
    same(memory.load(folder + "/notes.metatensor").search([0, 1], { topK: 1 })[0].id, "n");
    same([notes.remove("n"), notes.remove("n")], [true, false]);
    refused(() => notes.add("x", [1, 2, 3]), "UsageError", "width");
    refused(() => notes.add("x", [0, 0]), "UsageError", "zero");
    refused(() => notes.add("x", [1, 0], { meta: {} }), "UsageError", "meta");
    refused(() => memory.store(0), "UsageError", "width");
    refused(() => memory.load(folder + "/broken.metatensor"), "FileError", "");
    refused(() => memory.load("/etc/passwd"), "AccessError", "");
    refused(() => notes.save("/tmp/elsewhere.metatensor"), "AccessError", "");
    refused(() => notes.recall([0, 1], { count: () => { throw new RangeError("mine") } }), "RangeError", "mine");
  )js");
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
}

}  // namespace
}  // namespace weft::script
