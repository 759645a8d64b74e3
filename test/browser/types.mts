// Compiled, not run: what the declarations of the package allow, and what they refuse.
import { load, Tensor, WeftError } from "../../build-wasm/package/index.js";

const weft = await load({ device: "cpu" });
const x: Tensor = await weft.tensor([[1, 2, 3]]);
const y = x.softmax({ axis: -1 }).mul(10).matmul(weft.ops.randn({ shape: [3, 2] }));
const [values, places] = weft.ops.sort(x, { axis: 1 });
const total: number = await y.sum().item();
const step = weft.compile((a: Tensor) => a.tanh());
const z: Tensor = await step(x);
weft.ops.attention(x, x, x, { causal: true });
weft.ops.layer_norm(x);
weft.ops.layer_norm(x, null, x, { eps: 1e-6 });
weft.ops.concat([x, x], { axis: 0 });
// @ts-expect-error: softmax has an axis
x.softmax({ axes: 1 });
const optimizer = await weft.optimizer("Adam", [], { learningRate: 0.1, amsgrad: true });
await optimizer.setLearningRate(0.01);
await weft.optimizer("Lion", []);
// @ts-expect-error: Lion has no epsilon
await weft.optimizer("Lion", [], { epsilon: 1e-8 });
// @ts-expect-error: there is no such optimiser
await weft.optimizer("RMS", []);
// @ts-expect-error: an op takes tensors
weft.ops.add("a", x);

export { values, places, total, z, WeftError };
