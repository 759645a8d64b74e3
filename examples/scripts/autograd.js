// Gradients in a script: weft run examples/scripts/autograd.js
import { tensor, variable, grad, hessian, jvp, nn, valueAndGrad, vjp, vmap, noGrad } from "weft";

// Of a function, and of its gradient.
const f = (x) => x.sin().mul(x).sum();
const x = tensor([0.5, 1, 2]);
console.log("f'", grad(f)(x).toArray());
console.log("f''", grad((y) => grad(f)(y).sum())(x).toArray());
const [value, slope] = valueAndGrad(f)(x);
console.log("f", value.item(), slope.toArray());

// A line through points, in eager style.
const points = tensor([0, 1, 2, 3]), heights = tensor([1, 3, 5, 7]);
const a = variable(0, { name: "slope" }), b = variable(0, { name: "offset" });
for (let step = 0; step < 200; ++step) {
  const loss = points.mul(a).add(b).sub(heights).square().mean();
  const [da, db] = grad(loss, [a, b]);
  noGrad(() => {
    a.assign(a.sub(da.mul(0.1)));
    b.assign(b.sub(db.mul(0.1)));
  });
}
console.log("slope", a.item().toFixed(2), "offset", b.item().toFixed(2));

// Other transforms: a product with the Jacobian from either side, second derivatives, a function over a batch.
const [y, moved] = jvp((v) => v.mul(v.sum()), x, tensor([1, 0, 0]));
const [, pulled] = vjp((v) => v.mul(v.sum()), x, tensor([1, 0, 0]));
console.log("J v", moved.toArray(), "v J", pulled.toArray(), "at", y.toArray());
console.log("curvature", hessian((v) => v.mul(v).mul(v).sum(), x).toArray());
console.log("lengths", vmap((row) => nn.smoothL1(row, row.mul(0)))(tensor([[3, 4], [0, 1]])).toArray());
