// An op with kernels of its own: weft run examples/scripts/kernel.js
import { tensor, grad, registerKernel } from "weft";

const halves = registerKernel({
  name: "swap_halves",
  inputs: ["x"],
  // The CPU's kernel is a function of this script, over typed arrays.
  cpu: ([x], [out]) => {
    const half = x.length >> 1;
    out.set(x.subarray(half));
    out.set(x.subarray(0, half), x.length - half);
  },
  // The GPU's is text.
  wgsl: "let half = x_size / 2u; if (index < x_size) { store0(index, x((index + half) % x_size)); }",
  gradient: ({ outputGradients: [g] }) => [halves(g)],
});
const x = tensor([1, 2, 3, 4, 5, 6]);
console.log(halves(x).toArray());
console.log(grad((y) => halves(y).mul(tensor([1, 0, 0, 0, 0, 10])).sum())(x).toArray());
