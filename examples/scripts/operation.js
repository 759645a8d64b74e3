// A model as an operation that others may call:
//   weft run examples/scripts/operation.js --allow-register models --allow-operations tensor.softmax
import { tensor, manualSeed, nn, operations } from "weft";

manualSeed(3);
const model = nn.sequential(nn.linear(4, 16), (x) => x.relu(), nn.linear(16, 3));

operations.register(
  {
    namespace: "models",
    name: "classify",
    description: "Probabilities of three classes for rows of four numbers.",
    input: { type: "object", required: ["rows"], properties: { rows: { "x-tensor": { dtypes: ["f32"] } } } },
    output: { type: "object", properties: { probabilities: { "x-tensor": true } } },
    scopes: ["models:run"],
  },
  async ({ rows }) => {
    const { result } = await operations.call("tensor.softmax", { x: model(rows) });
    return { probabilities: result };
  },
);

// The script calls it as any client would: the input is checked, the handler runs, the answer comes back.
const rows = tensor([[1, 2, 3, 4], [0, 0, 0, 0]]);
const { probabilities } = await operations.call("models.classify", { rows });
console.log(probabilities.shape, probabilities.sum(-1).toArray().map((p) => p.toFixed(3)));
try {
  await operations.call("models.classify", { rows: "none" });
} catch (error) {
  console.log(error.name, error.message.split(":")[0]);
}
