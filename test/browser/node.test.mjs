// The package in Node.js, on the CPU, against the native build: node --test, after script/wasm and a build of the command.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import * as scenarios from "./scenarios.mjs";

const tree = fileURLToPath(new URL("../..", import.meta.url));
const command = process.env.WEFT_COMMAND ?? join(tree, "build/weft");
const { load, WeftError } = await import(process.env.WEFT_PACKAGE ?? join(tree, "build-wasm/package/index.js"));

let weft, folder;
before(async () => {
  weft = await load();
  folder = mkdtempSync(join(tmpdir(), "weft-wasm-"));
});
after(() => rmSync(folder, { recursive: true }));

function native(...given) {
  // The module has the kernels that run on every processor.
  const env = { ...process.env, WEFT_CPU_ISA: "baseline" };
  const run = spawnSync(command, given, { cwd: folder, encoding: "utf8", env });
  assert.equal(run.status, 0, `weft ${given.join(" ")}\n${run.error ?? ""}${run.stderr}`);
  return run.stdout;
}
export function near(found, expected, relative, what) {
  assert.equal(found.length, expected.length, what);
  found.forEach((value, i) => {
    const limit = relative * Math.max(1, Math.abs(expected[i]));
    assert.ok(Math.abs(value - expected[i]) <= limit, `${what}[${i}]: ${value}, expected ${expected[i]}`);
  });
}

test("adds two tensors", async () => {
  const sum = (await weft.tensor([1, 2, 3])).add(await weft.tensor([10, 20, 30]));
  assert.deepEqual(sum.shape, [3]);
  assert.equal(sum.dtype, "f32");
  assert.deepEqual(Array.from(await sum.data()), [11, 22, 33]);
});

test("ops and gradients have the numbers of the native build", async () => {
  const tensors = {};
  for (const [name, [shape, seed]] of Object.entries(scenarios.inputs))
    tensors[name] = await weft.tensor(scenarios.numbers(shape.reduce((a, b) => a * b, 1), seed), { shape });
  writeFileSync(join(folder, "in.npz"), await weft.save(tensors, "in.npz"));
  writeFileSync(join(folder, "program.json"), JSON.stringify(scenarios.program));
  native("eval", "program.json", "--inputs", "in.npz", "--out", "out.npz", "--device", "cpu");
  const expected = await weft.load(readFileSync(join(folder, "out.npz")), "out.npz");
  const found = await scenarios.runProgram(weft);
  assert.deepEqual(Object.keys(found).sort(), [...expected.keys()].sort());
  for (const [name, tensor] of expected) {
    assert.deepEqual(found[name].shape, tensor.shape, name);
    near(found[name].data, Array.from(await tensor.data(), Number), 2e-6, name);
  }
});

test("training on a text has the losses of the native build", async () => {
  writeFileSync(join(folder, "text.txt"), scenarios.text);
  native("train", "text", "--data", "text.txt", "--out", "run", "--preset", "tiny", "--steps", "20", "--seed", "1",
         "--device", "cpu", "--log-every", "1");
  const metrics = readFileSync(join(folder, "run/metrics.jsonl"), "utf8").trim().split("\n").map((line) => JSON.parse(line));
  const expected = metrics.filter((each) => each.loss !== undefined).map((each) => each.loss);
  assert.equal(expected.length, 20);
  const { losses, written } = await scenarios.trainText(weft);
  near(losses, expected, 1e-4, "loss");
  assert.ok(losses.at(-1) < losses[0] / 1.5, `${losses}`);
  assert.equal(typeof written, "string");
  assert.ok(written.length >= 20, written);
});

test("a checkpoint made here is read by the command", async () => {
  const trainer = await weft.trainText(scenarios.text, { steps: 40 });
  for (let i = 0; i < 40; ++i) await trainer.step();
  writeFileSync(join(folder, "made.safetensors"), await trainer.save());
  const expected = await trainer.generate("row, ", { maxTokens: 15, temperature: 0 });
  const written = native("generate", "made.safetensors", "--prompt", "row, ", "--max-tokens", "15", "--temperature", "0",
                         "--device", "cpu");
  assert.ok(written.includes(expected), `${written} has no '${expected}'`);
});

test("a network learns in a compiled step", async () => {
  const losses = await scenarios.learn(weft, 200);
  assert.ok(losses.at(-1) < 0.01, `${losses.at(-1)}`);
});

test("optimisers have the numbers of the native build", async () => {
  writeFileSync(join(folder, "optimize.js"), `
    import { tensor, variable, optim } from "weft";
    const found = {};
    for (const name of Object.getOwnPropertyNames(optim).filter((each) => each !== "schedule")) {
      const x = variable(tensor([[1, -2, 3]])), optimizer = optim[name]([x], { learningRate: 0.1 });
      for (const rate of [0.1, 0.1, 0.01]) {
        optimizer.learningRate = rate;
        optimizer.step([x.value.square().add(1)]);
      }
      found[name.toLowerCase()] = x.value.toArray()[0];
    }
    console.log(JSON.stringify(found));`);
  const expected = JSON.parse(native("run", "optimize.js", "--device", "cpu"));
  const found = await scenarios.optimize(weft);
  assert.ok(Object.keys(found).length >= 15);
  assert.equal(Object.keys(found).length, Object.keys(expected).length);
  for (const [title, values] of Object.entries(found)) near(values, expected[title.toLowerCase()], 2e-6, title);
});

test("mistakes are errors with a message, and the module goes on", async () => {
  const seen = await scenarios.mistakes(weft);
  const expected = {
    shapes: /^WeftShapeError: matmul: /,
    dtype: /^WeftDTypeError: there is no dtype/,
    attribute: /^WeftUsageError: softmax has no attribute 'axes'; it has axis/,
    attributeType: /^WeftUsageError: softmax: axis is a whole number/,
    ragged: /^WeftShapeError: nested arrays of different lengths/,
    size: /^Weft(Usage|Shape)Error: /,
    memory: /^WeftDeviceError: cpu: no memory for/,
    file: /^WeftFileError: /,
    huge: /^WeftFileError: /,
    gguf: /^WeftFileError: /,
    inTrace: /^RangeError: mine$/,
    optimizer: /^WeftUsageError: there is no optimizer "Adan"; there are sgd, adam/,
    option: /^WeftUsageError: Lion has no option 'epsilon'; it has learningRate, beta1, beta2/,
    optionType: /^WeftUsageError: Adam: amsgrad is true or false; 1 was given/,
    optionRange: /^WeftUsageError: Adam: beta_1 is 1; it must be in \[0, 1\)/,
    disposed: /^WeftHandleError: this Tensor was disposed of/,
    device: /^Weft(Usage|Device)Error: /,
  };
  for (const [name, pattern] of Object.entries(expected)) assert.match(seen[name], pattern, name);
  assert.deepEqual(seen.after, [2, 4, 6]);
});

test("handles are released", async () => {
  const before = weft.liveHandles;
  const a = await weft.tensor([1, 2]);
  const b = a.add(a);
  assert.equal(weft.liveHandles, before + 2);
  a.dispose();
  b.dispose();
  b.dispose();
  assert.equal(weft.liveHandles, before);
});

test("WebGPU without a way to wait is refused", { skip: typeof WebAssembly.Suspending === "function" }, async () => {
  assert.throws(() => weft.useDevice("webgpu"), (error) => error instanceof WeftError && error.kind === "Device");
});

// The model of 93 MB is there if script/setup --model fetched it.
const model = join(process.env.WEFT_CACHE ?? join(tree, ".cache"), "data/SmolLM2-135M-Instruct.Q4_1.gguf");
const readModel = () => {
  try {
    return readFileSync(model);
  } catch {
    return null;
  }
};
test("a language model writes what the native build writes", { skip: readModel() ? false : "script/setup --model" }, async () => {
  const loaded = await weft.loadModel(readModel(), { context: 256 });
  assert.match(loaded.describe(), /llama/);
  let written = "";
  for await (const piece of loaded.chat([{ role: "user", content: "What is the capital of France?" }], { maxTokens: 12, temperature: 0 }))
    written += piece;
  const expected = native("chat", model, "What is the capital of France?", "--max-tokens", "12", "--temperature", "0",
                          "--device", "cpu", "--context", "256");
  assert.ok(expected.includes(written.trim()), `'${written}', expected '${expected}'`);
  loaded.dispose();
});
