// TypeScript runs as it is: weft run examples/scripts/regression.ts
import { tensor, compile, grad, manualSeed, nn, optim, type Tensor } from "weft";
import { noise, type Sample } from "./data.ts";

enum Mode { Fast = 60, Slow = 400 }

class Regressor extends nn.Module {
  private readonly body: nn.Layer;
  constructor(public readonly width: number) {
    super();
    this.body = this.add("body", nn.sequential(nn.linear(1, width), (x: Tensor) => x.tanh(), nn.linear(width, 1)));
  }
  forward(x: Tensor): Tensor {
    return this.body(x);
  }
}

const samples: Sample[] = Array.from({ length: 64 }, (_, i) => ({ x: i / 32 - 1, y: Math.sin((i / 32 - 1) * 3) + noise(i) }));
const x = tensor(samples.map((s) => [s.x])), y = tensor(samples.map((s) => [s.y]));

manualSeed(2);
const model = new Regressor(32);
const optimizer = optim.adam(model, { learningRate: 0.02 });
const step = compile((inputs: Tensor, wanted: Tensor) => {
  const loss = nn.mse(model(inputs) as Tensor, wanted);
  optimizer.step(grad(loss, optimizer));
  return loss;
});
let last = Infinity;
for (let i = 0; i < Mode.Slow; ++i) last = step(x, y).item() as number;
console.log(`width ${model.width}, loss ${last.toFixed(4)}`);
if (last > 0.01) throw new Error("the curve was not learned");
