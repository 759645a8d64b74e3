// An autoencoder and a variational autoencoder of handwritten digits, which draws digits that nobody wrote.
//   weft run vae.js --allow-read .             with digits/0.json ... digits/9.json beside it (docs/gallery.md)
import { files, tensor, randn, randint, compile, grad, manualSeed, nn, optim } from "weft";

const settings = { steps: 3000, batch: 128, hidden: 256, code: 16,
  ...(files.exists("settings.json") ? JSON.parse(files.readText("settings.json")) : {}) };

const images = [];
for (let digit = 0; digit < 10; ++digit) {
  const { data } = JSON.parse(files.readText(`digits/${digit}.json`));
  for (let i = 0; i + 784 <= data.length; i += 784) images.push(data.slice(i, i + 784));
}
const pack = (list) => tensor(Float32Array.from(list.flat()), { shape: [list.length, 784] });
const train = pack(images.filter((_, i) => i % 10 !== 0)), test = pack(images.filter((_, i) => i % 10 === 0));

class Autoencoder extends nn.Module {
  constructor(isVariational) {
    super();
    this.isVariational = isVariational;
    this.read = nn.linear(784, settings.hidden);
    this.code = nn.linear(settings.hidden, (isVariational ? 2 : 1) * settings.code);
    this.write = nn.linear(settings.code, settings.hidden);
    this.pixels = nn.linear(settings.hidden, 784);
  }
  decode(z) {
    return this.pixels(this.write(z).relu());  // logits
  }
  // The mean squared error of a pixel, and what the loss is: bits of the image, and of the code for the variational one.
  forward(x) {
    const code = this.code(this.read(x).relu());
    let z = code, divergence = tensor(0);
    if (this.isVariational) {
      const mean = code.narrow(1, 0, settings.code), logVariance = code.narrow(1, settings.code, settings.code);
      z = this.isTraining ? mean.add(logVariance.mul(0.5).exp().mul(randn([x.shape[0], settings.code]))) : mean;
      // KL(N(mean, variance) || N(0, 1))
      divergence = logVariance.exp().add(mean.square()).sub(1).sub(logVariance).sum([1]).mul(0.5).mean();
    }
    const logits = this.decode(z);
    const bits = nn.binaryCrossEntropy(logits, x).mul(784);
    return { loss: bits.add(divergence), error: logits.sigmoid().sub(x).square().mean(), divergence };
  }
}

function fit(isVariational) {
  manualSeed(1);
  const model = new Autoencoder(isVariational), optimizer = optim.adam(model);
  const rate = optim.schedule({ kind: "cosine", rate: 0.002, finalRate: 0.0001, steps: settings.steps });
  const step = compile((x, learningRate) => {
    const { loss } = model(x);
    optimizer.step(grad(loss, optimizer), learningRate);
    return loss;
  });
  for (let i = 0; i < settings.steps; ++i) step(train.get(randint(0, train.shape[0], [settings.batch]).eval()), rate(i));
  model.eval();
  return model;
}
const show = (pixels) => {
  for (let y = 0; y < 28; y += 2)
    console.log(pixels.map((image) => Array.from({ length: 28 }, (_, x) => " .:*#"[Math.min(4, Math.floor(5 * Math.max(image[28 * y + x], image[28 * y + 28 + x])))]).join("")).join(" "));
};

const plain = fit(false), variational = fit(true);
const blank = test.sub(train.mean([0])).square().mean().item();
const errors = [plain, variational].map((model) => model(test).error.item());
show(variational.decode(randn([4, settings.code])).sigmoid().toArray());
console.log(`error of a pixel: mean image ${blank.toFixed(4)}, autoencoder ${errors[0].toFixed(4)}, variational ${errors[1].toFixed(4)}`);
console.log(`bound of the variational one: ${variational(test).loss.item().toFixed(1)} nats, of which the code has ${variational(test).divergence.item().toFixed(1)}`);
