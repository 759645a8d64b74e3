// A small GPT that learns to write from a text, as operations: writer.train, writer.score and writer.write.
// examples/joined/run.py serves it; docs/joined.md explains it.
import { compile, files, grad, manualSeed, nn, operations, optim, tensor, type Tensor } from "weft";

const settings: { folder: string; layers: number; width: number; context: number; batch: number } =
  JSON.parse(files.readText("settings.json"));
const text = files.readText("text.txt");
const codes = Array.from(text, (c) => Math.min(c.charCodeAt(0), 127));  // characters are tokens

manualSeed(1);
const { context } = settings;
const model = nn.gpt({ vocabulary: 128, context, layers: settings.layers, heads: 4, width: settings.width });
const optimizer = optim.adamW(model, { learningRate: 3e-3 });
const step = compile((x: Tensor, y: Tensor) => {
  const loss = nn.crossEntropy(model(x), y);
  optimizer.step(grad(loss, optimizer));
  return loss;
});

let seed = 1;  // of the places in the text, the same in every run
const random = (below: number) => (seed = (seed * 48271) % 2147483647) % below;

function batch(): [Tensor, Tensor] {
  const x: number[][] = [], y: number[][] = [];
  for (let i = 0; i < settings.batch; ++i) {
    const at = random(codes.length - context - 1);
    x.push(codes.slice(at, at + context));
    y.push(codes.slice(at + 1, at + context + 1));
  }
  return [tensor(x, { dtype: "i32" }), tensor(y, { dtype: "i32" })];
}

// A subscription: the loss as it falls. Each value is an answer; the next steps run when the caller has taken it.
operations.register(
  {
    namespace: "writer", name: "train", kind: "subscription", scopes: ["writer:train"],
    description: "Trains the model on its text, and keeps the weights in model.safetensors.",
    input: { type: "object", properties: { steps: { type: "integer", minimum: 1, maximum: 100000, default: 100 } } },
    output: { type: "object", required: ["step", "loss"] },
  },
  async function* ({ steps }: { steps: number }) {
    for (let done = 0; done < steps;) {
      let loss: Tensor | undefined;
      for (let i = 0; i < 10 && done < steps; ++i, ++done) loss = step(...batch());
      yield { step: done, loss: loss!.item() };
      await null;  // other calls have their turn
    }
    model.save("model.safetensors");
  },
);

// Tensors come and go as bytes, in every transport.
const score = (tokens: Tensor): Tensor => model(tokens.reshape([1, -1])).get(0, -1);
operations.register(
  {
    namespace: "writer", name: "score", scopes: ["writer:run"],
    description: "The scores of the next character after some tokens.",
    input: {
      type: "object", required: ["tokens"],
      properties: { tokens: { "x-tensor": { dtypes: ["i32"] } } },
    },
    output: { type: "object", required: ["scores"], properties: { scores: { "x-tensor": { dtypes: ["f32"] } } } },
    errors: { TOO_LONG: "more tokens than the context of the model" },
  },
  ({ tokens }: { tokens: Tensor }) => {
    if (tokens.rank !== 1 || tokens.size < 1 || tokens.size > context)
      throw Object.assign(new Error(`tokens has shape [${tokens.shape}]; [1] to [${context}] are possible`), {
        code: "TOO_LONG", details: { most: context },
      });
    return { scores: score(tokens) };
  },
);

operations.register(
  {
    namespace: "writer", name: "write", scopes: ["writer:run"],
    description: "Goes on with a text, with the likeliest character each time.",
    input: {
      type: "object", required: ["prompt"],
      properties: {
        prompt: { type: "string", minLength: 1, maxLength: 1000 },
        length: { type: "integer", minimum: 1, maximum: 1000, default: 40 },
      },
    },
    output: { type: "object", required: ["text"], properties: { text: { type: "string" } } },
  },
  ({ prompt, length }: { prompt: string; length: number }) => {
    const tokens = Array.from(prompt, (c) => Math.min(c.charCodeAt(0), 127));
    const first = tokens.length;
    while (tokens.length < first + length)
      tokens.push(score(tensor(tokens.slice(-context), { dtype: "i32" })).argmax(-1).item() as number);
    return { text: String.fromCharCode(...tokens.slice(first)) };
  },
);
