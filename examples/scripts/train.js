// A model that learns to tell two spirals apart: weft run examples/scripts/train.js
import { tensor, compile, grad, manualSeed, nn, optim } from "weft";

class Classifier extends nn.Module {
  hidden = nn.linear(2, 64);
  middle = nn.linear(64, 64);
  output = nn.linear(64, 2);
  forward(x) {
    return this.output(this.middle(this.hidden(x).tanh()).tanh());
  }
}

const count = 400, points = [], labels = [];
for (let i = 0; i < count; ++i) {
  const side = i % 2, radius = (i / count) * 2 + 0.1, angle = radius * 4 + side * Math.PI;
  points.push([radius * Math.cos(angle), radius * Math.sin(angle)]);
  labels.push(side);
}
const x = tensor(points), y = tensor(labels, { dtype: "i32" });

manualSeed(1);
const model = new Classifier();
console.log(model.summary());
const optimizer = optim.adamW(model, { learningRate: 0.01 });

// The function runs once; afterwards calls replay its plan: forward pass, gradients and updates.
const step = compile((inputs, wanted) => {
  const loss = nn.crossEntropy(model(inputs), wanted);
  optimizer.step(grad(loss, optimizer));
  return loss;
});
for (let i = 0; i <= 300; ++i) {
  const loss = step(x, y);
  if (i % 100 === 0) console.log(`step ${i}  loss ${loss.item().toFixed(4)}`);
}
const right = model(x).argmax(-1).eq(y).to("f32").mean().item();
console.log(`accuracy ${(100 * right).toFixed(1)} %, ${step.kernelCount} kernels a step`);
if (right < 0.99) throw new Error("the model has not learned the spirals");
