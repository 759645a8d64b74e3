// Tensors in a script: weft run examples/scripts/tensors.js
import { tensor, arange, concat, einsum, softmax, create, read, registerOp } from "weft";

const x = tensor([[1, 2, 3], [4, 5, 6]]);
console.log(x);
console.log("shape", x.shape, "dtype", x.dtype, "sum", x.sum().item());

// Every op of `weft ops list` is a function and a method; attributes follow by position or by name.
console.log(softmax(x, -1));
console.log(x.mean({ axes: [0], keepdims: true }).toArray());
console.log(x.add(10).mul(x).get(1, [0, 2]).toArray());
console.log(concat([x, x], 1).shape, einsum("ij,kj->ik", x, x).toArray());

// Elements are read on another thread while the script goes on.
const big = arange(100_000).to("f32").sin().sum();
const elements = await big.read();
console.log("sum of sines", elements[0].toFixed(3));

// An op of one's own, from text: it has kernels and a gradient on every device.
const wave = registerOp({ name: "wave", inputs: ["x"], forward: "sin(x) * k", attributes: { k: 2 } });
console.log(wave(tensor([0, 1, 2]), { k: 3 }).toArray().map((value) => value.toFixed(3)));

// Bytes in and bytes out.
const raw = create(new Float32Array([1.5, -2]), [2], "f32");
console.log(new Float32Array(read(raw)));

// A handle can be given back at once. What is forgotten goes when the script no longer refers to it.
{
  using temporary = x.matmul(x.transpose());
  console.log("trace", temporary.trace().item());
}
