// What the tests do with the package, in Node.js and in a browser: each scenario gives plain numbers and texts.

/** A program of `weft eval` that the native build runs too. Inputs are named; a gradient is of the sum of its output. */
export const program = {
  steps: [
    { op: "matmul", inputs: ["a", "b"], output: "product" },
    { op: "softmax", inputs: ["a"], attributes: { axis: -1 }, output: "softmax" },
    { op: "gelu", inputs: ["a"], output: "gelu" },
    { op: "layer_norm", inputs: ["a"], output: "norm" },
    { op: "sum", inputs: ["a"], attributes: { axes: [0], keepdims: true }, output: "sum" },
    { op: "cumsum", inputs: ["a"], attributes: { axis: 1 }, output: "cumsum" },
    { op: "sort", inputs: ["a"], attributes: { axis: 1 }, output: ["sorted", "places"] },
    { op: "conv2d", inputs: ["image", "filter"], output: "conv" },
    { op: "attention", inputs: ["q", "k", "v"], attributes: { causal: true }, output: "attention" },
    { op: "exp", inputs: ["a"], output: "exp" },
    { op: "erf", inputs: ["a"], output: "erf" },
    { op: "tanh", inputs: ["product"], output: "tanh" },
  ],
  gradients: [
    { of: "tanh", with_respect_to: ["a", "b"], outputs: ["tanh_a", "tanh_b"] },
    { of: "attention", weight: "v", with_respect_to: ["q"], outputs: ["attention_q"] },
    { of: "conv", with_respect_to: ["filter"], outputs: ["conv_filter"] },
  ],
};

// Numbers in [-2, 2) that every engine computes alike.
export function numbers(count, seed) {
  let state = seed >>> 0;
  return Float32Array.from({ length: count }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 30 - 2;
  });
}
export const inputs = {
  a: [[5, 7], 1],
  b: [[7, 3], 2],
  image: [[1, 2, 6, 5], 3],
  filter: [[3, 2, 3, 3], 4],
  q: [[1, 2, 9, 8], 5],
  k: [[1, 2, 9, 8], 6],
  v: [[1, 2, 9, 8], 7],
};

const plain = async (tensor) => ({ shape: tensor.shape, data: Array.from(await tensor.data(), Number) });

export async function runProgram(weft) {
  const values = new Map();
  for (const [name, [shape, seed]] of Object.entries(inputs)) {
    const count = shape.reduce((a, b) => a * b, 1);
    values.set(name, await weft.tensor(numbers(count, seed), { shape }));
  }
  for (const { op, inputs, attributes = {}, output } of program.steps) {
    const result = weft.ops[op](...inputs.map((name) => values.get(name)), attributes);
    [output].flat().forEach((name, i) => values.set(name, [result].flat()[i]));
  }
  for (const { of, weight, with_respect_to, outputs } of program.gradients) {
    const output = values.get(of);
    const seed = weight ? values.get(weight) : weft.ones(output.shape, { dtype: output.dtype });
    const results = weft.gradient(output, with_respect_to.map((name) => values.get(name)), seed);
    outputs.forEach((name, i) => values.set(name, results[i]));
  }
  const found = {};
  for (const [name, tensor] of values) if (!(name in inputs)) found[name] = await plain(tensor);
  return found;
}

/** Losses of a network that learns the parity of two numbers, in a compiled step. */
export async function learn(weft, steps = 30) {
  const x = await weft.tensor([[0, 0], [0, 1], [1, 0], [1, 1]]);
  const y = await weft.tensor([[0], [1], [1], [0]]);
  const weight = async (shape, seed) => {
    const count = shape.reduce((a, b) => a * b, 1);
    return weft.variable(await weft.tensor(numbers(count, seed), { shape }));
  };
  const [w1, b1, w2, b2] = [await weight([2, 16], 8), await weight([16], 9), await weight([16, 1], 10), await weight([1], 11)];
  const optimizer = await weft.optimizer("AdamW", [w1, b1, w2, b2], { learningRate: 0.05 });
  const step = weft.compile((x, y) => {
    const hidden = x.matmul(w1.value).add(b1.value).tanh();
    const loss = hidden.matmul(w2.value).add(b2.value).sub(y).square().mean();
    optimizer.step(weft.gradient(loss, optimizer.parameters));
    return loss;
  });
  const losses = [];
  for (let i = 0; i < steps; ++i) losses.push(await (await step(x, y)).item());
  return losses;
}

/** Three updates of [1, -2, 3] by the gradients x^2 + 1, the last one at a tenth of the rate, by each optimiser. */
export async function optimize(weft) {
  const found = {};
  for (const { title } of weft.optimizers) {
    const x = await weft.variable(await weft.tensor([[1, -2, 3]]));
    const optimizer = await weft.optimizer(title, [x], { learningRate: 0.1 });
    const step = weft.compile(() => optimizer.step([x.value.square().add(1)]));
    for (const rate of [0.1, 0.1, 0.01]) {
      await optimizer.setLearningRate(rate);
      await step();
    }
    found[title] = Array.from(await x.value.data());
  }
  return found;
}

export const text = "row, row, row your boat, gently down the stream\n".repeat(100);

/** Losses of a small GPT, and what it writes. */
export async function trainText(weft, steps = 20) {
  const trainer = await weft.trainText(text, { preset: "tiny", steps, seed: 1 });
  const losses = [];
  for (let i = 0; i < steps; ++i) losses.push(await trainer.step());
  const written = await trainer.generate("row, ", { maxTokens: 20, temperature: 0 });
  return { losses, written };
}

/** What a program sees of mistakes; the module goes on after each. */
export async function mistakes(weft) {
  const a = await weft.tensor([[1, 2, 3]]);
  const b = await weft.tensor([[1, 2], [3, 4]]);
  const seen = {};
  const attempt = async (name, work) => {
    try {
      await work();
      seen[name] = "no error";
    } catch (error) {
      seen[name] = `${error.name}: ${error.message}`;
    }
  };
  await attempt("shapes", () => weft.ops.matmul(a, b));
  await attempt("dtype", () => weft.tensor([1], { dtype: "f31" }));
  await attempt("attribute", () => weft.ops.softmax(a, { axes: 1 }));
  await attempt("attributeType", () => weft.ops.softmax(a, { axis: "last" }));
  await attempt("ragged", () => weft.tensor([[1, 2], [3]]));
  await attempt("size", () => weft.tensor(new Float32Array(3), { shape: [4] }));
  await attempt("memory", async () => (await weft.full(1, [40000, 40000]).add(a.sum()).evaluate()).shape);
  await attempt("file", () => weft.load(new Uint8Array([1, 2, 3]), "x.safetensors"));
  await attempt("huge", () => weft.load(new Uint8Array([255, 255, 255, 255, 255, 255, 255, 127, 123]), "x.safetensors"));
  await attempt("gguf", () => weft.loadModel(new Uint8Array(64)));
  await attempt("inTrace", () => weft.compile(() => { throw new RangeError("mine"); })(a));
  const parameter = await weft.variable(a);
  await attempt("optimizer", () => weft.optimizer("Adan", [parameter]));
  await attempt("option", () => weft.optimizer("Lion", [parameter], { epsilon: 1 }));
  await attempt("optionType", () => weft.optimizer("Adam", [parameter], { amsgrad: 1 }));
  await attempt("optionRange", () => weft.optimizer("Adam", [parameter], { beta1: 1 }));
  await attempt("disposed", () => {
    const c = a.add(a);
    c.dispose();
    return c.data();
  });
  await attempt("device", () => weft.tensor([1], { device: "abacus" }));
  seen.after = Array.from(await a.add(a).data());
  return seen;
}
