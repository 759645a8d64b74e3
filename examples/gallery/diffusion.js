// Draws handwritten digits by diffusion: a network learns to tell noise from picture, and makes pictures of noise step by step.
//   weft run diffusion.js --allow-read .       with digits/0.json ... digits/9.json beside it (docs/gallery.md)
import { files, tensor, rand, randn, randint, concat, compile, grad, manualSeed, nn, optim } from "weft";

const settings = { steps: 3000, batch: 128, width: 512, drawSteps: 50, drawn: 5,
  ...(files.exists("settings.json") ? JSON.parse(files.readText("settings.json")) : {}) };

// Digits of 14 x 14, in [-1, 1], and their labels.
const pixels = [], labels = [];
for (let digit = 0; digit < 10; ++digit) {
  const { data } = JSON.parse(files.readText(`digits/${digit}.json`));
  for (let i = 0; i + 784 <= data.length; i += 784) {
    labels.push(digit);
    for (let y = 0; y < 28; y += 2)
      for (let x = 0; x < 28; x += 2) {
        const at = i + 28 * y + x;
        pixels.push((data[at] + data[at + 1] + data[at + 28] + data[at + 29]) / 2 - 1);
      }
  }
}
const images = tensor(Float32Array.from(pixels), { shape: [labels.length, 196] }), kinds = tensor(Int32Array.from(labels));

// A picture at time t in [0, 1] is cos(t pi / 2) picture + sin(t pi / 2) noise. The network sees it, the time and the digit, and tells
// the velocity cos noise - sin picture, of which both follow.
class Denoiser extends nn.Module {
  digit = nn.embedding(10, settings.width);
  time = nn.linear(32, settings.width);
  inputs = nn.linear(196, settings.width);
  blocks = Array.from({ length: 3 }, () => nn.sequential(nn.layerNorm(settings.width), nn.linear(settings.width, settings.width), (x) => x.silu(), nn.linear(settings.width, settings.width)));
  outputs = nn.linear(settings.width, 196);
  forward(x, t, digit) {
    const waves = t.reshape([-1, 1]).mul(tensor([Array.from({ length: 16 }, (_, k) => 2 ** (k / 2))]));
    const context = this.time(concat([waves.sin(), waves.cos()], 1)).add(this.digit(digit));
    let h = this.inputs(x);
    for (const block of this.blocks) h = h.add(block(h.add(context)));
    return this.outputs(h);
  }
}
const parts = (t) => { const angle = t.mul(Math.PI / 2).reshape([-1, 1]); return [angle.cos(), angle.sin()]; };

manualSeed(1);
const model = new Denoiser(), optimizer = optim.adamW(model, { clipNorm: 1 });
const rate = optim.schedule({ kind: "cosine", rate: 0.001, finalRate: 0.00005, steps: settings.steps, warmUp: Math.min(100, settings.steps / 4) });
const step = compile((x, digit, learningRate) => {
  const t = rand([settings.batch]), noise = randn([settings.batch, 196]), [c, s] = parts(t);
  const loss = nn.mse(model(c.mul(x).add(s.mul(noise)), t, digit), c.mul(noise).sub(s.mul(x)));
  optimizer.step(grad(loss, optimizer), learningRate);
  return loss;
});
for (let i = 0; i < settings.steps; ++i) {
  const rows = randint(0, labels.length, [settings.batch]).eval();
  const loss = step(images.get(rows), kinds.get(rows), rate(i));
  if ((i + 1) % Math.max(1, Math.floor(settings.steps / 5)) === 0) console.log(`step ${i + 1}  loss ${loss.item().toFixed(3)}`);
}

// From noise to picture without chance (DDIM): x at an earlier time has the same picture and the same noise.
model.eval();
const count = 10 * settings.drawn, digits = tensor(Int32Array.from({ length: count }, (_, i) => i % 10));
const denoise = compile((x, t, next) => {
  const v = model(x, t, digits), [c, s] = parts(t), [c2, s2] = parts(next);
  const picture = c.mul(x).sub(s.mul(v)).clip(-1, 1), noise = s.mul(x).add(c.mul(v));
  return c2.mul(picture).add(s2.mul(noise));
});
let x = randn([count, 196]).eval();
for (let i = settings.drawSteps; i > 0; --i)
  x = denoise(x, tensor(new Float32Array(count).fill(i / settings.drawSteps)), tensor(new Float32Array(count).fill((i - 1) / settings.drawSteps)));
const drawn = x.toArray();
for (let y = 0; y < 14; y += 1)
  console.log(drawn.slice(0, 10).map((image) => Array.from({ length: 14 }, (_, k) => " .:*#"[Math.max(0, Math.min(4, Math.floor(2.5 * (image[14 * y + k] + 1))))]).join("")).join(" "));

// A judge: of which digit is the mean picture nearest?
const means = Array.from({ length: 10 }, (_, digit) =>
  images.get(tensor(Int32Array.from(labels.flatMap((label, i) => (label === digit ? [i] : []))))).mean([0]).toArray());
const nearest = (image) => {
  const distances = means.map((mean) => mean.reduce((sum, m, i) => sum + (m - image[i]) ** 2, 0));
  return distances.indexOf(Math.min(...distances));
};
const share = (list, wanted) => list.filter((image, i) => nearest(image) === wanted[i]).length / list.length;
const some = Array.from({ length: 500 }, (_, i) => Math.floor((i * labels.length) / 500)), real = images.get(tensor(Int32Array.from(some))).toArray();
console.log(`nearest mean is the wanted digit: ${(100 * share(drawn, drawn.map((_, i) => i % 10))).toFixed(0)}% of those drawn, ${(100 * share(real, some.map((i) => labels[i]))).toFixed(0)}% of real ones`);
