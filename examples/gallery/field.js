// A radiance field (NeRF): a network that knows density and colour at every point learns a scene from pictures, and shows it from
// where no picture was taken. The scene is two spheres and a floor, drawn here by the same integral along rays.
//   weft run field.js                          a settings.json and --allow-read . change the settings
import { files, tensor, rand, randint, concat, compile, grad, manualSeed, nn, optim } from "weft";

let given = {};
try { given = JSON.parse(files.readText("settings.json")); } catch { /* the defaults */ }
const settings = { steps: 1500, rays: 512, samples: 32, size: 32, views: 24, width: 64, ...given };

// Rays of a camera on a circle around the scene: origins and directions [size * size, 3].
function camera(angle) {
  const eye = [2.6 * Math.cos(angle), 1, 2.6 * Math.sin(angle)], norm = Math.hypot(...eye);
  const forward = eye.map((v) => -v / norm), right = [-Math.sin(angle), 0, Math.cos(angle)];
  const up = [right[1] * forward[2] - right[2] * forward[1], right[2] * forward[0] - right[0] * forward[2], right[0] * forward[1] - right[1] * forward[0]];
  const directions = [];
  for (let i = 0; i < settings.size; ++i)
    for (let j = 0; j < settings.size; ++j) {
      const u = (j + 0.5) / settings.size - 0.5, v = 0.5 - (i + 0.5) / settings.size;
      const d = forward.map((f, k) => f + u * right[k] - v * up[k]), length = Math.hypot(...d);
      directions.push(d.map((x) => x / length));
    }
  return { origins: tensor(directions.map(() => eye)), directions: tensor(directions) };
}

// The scene: density and colour at points [n, 3].
function scene(p) {
  const inside = (distance) => distance.mul(-30).sigmoid();
  const ball = (x, y, z, radius) => inside(p.sub(tensor([x, y, z])).square().sum([1], true).sqrt().sub(radius));
  const [px, py, pz] = [0, 1, 2].map((k) => p.narrow(1, k, 1));
  const floor = inside(concat([py.add(0.5).abs().sub(0.06), px.abs().sub(0.9), pz.abs().sub(0.9)], 1).amax([1], true));
  const parts = [[ball(-0.3, -0.1, 0.1, 0.35), [0.9, 0.2, 0.1]], [ball(0.4, -0.25, -0.2, 0.2), [0.1, 0.4, 0.9]], [floor, [0.5, 0.7, 0.4]]];
  const total = parts.map(([d]) => d).reduce((a, b) => a.add(b));
  const colour = parts.map(([d, rgb]) => d.mul(tensor([rgb]))).reduce((a, b) => a.add(b)).div(total.add(1e-4));
  return { density: total.mul(20), colour };
}

// Colours along rays: sum_i T_i (1 - exp(-density_i delta)) colour_i, where T_i is the light that the samples before let through.
const near = 1.2, far = 4.4;
function render(field, origins, directions, jitter) {
  const n = origins.shape[0], s = settings.samples, delta = (far - near) / s;
  const places = tensor(Float32Array.from({ length: s }, (_, i) => near + (i + 0.5) * delta), { shape: [1, s, 1] });
  const at = jitter ? places.add(jitter.sub(0.5).mul(delta)) : places;
  const points = origins.reshape([n, 1, 3]).add(directions.reshape([n, 1, 3]).mul(at)).reshape([n * s, 3]);
  const { density, colour } = field(points);
  const absorbed = density.reshape([n, s]).mul(delta);
  const before = absorbed.cumsum(1).sub(absorbed).neg().exp();
  const weight = before.mul(absorbed.neg().exp().neg().add(1)).reshape([n, s, 1]);
  return weight.mul(colour.reshape([n, s, 3])).sum([1]);
}

class Field extends nn.Module {
  inputs = nn.linear(3 + 6 * 6, settings.width);
  hidden = nn.linear(settings.width, settings.width);
  outputs = nn.linear(settings.width, 4);
  forward(p) {
    const waves = [p];  // sin and cos of 1, 2, 4, ... times the place, so that the network sees fine detail
    for (let k = 0; k < 6; ++k) waves.push(p.mul(2 ** k).sin(), p.mul(2 ** k).cos());
    const out = this.outputs(this.hidden(this.inputs(concat(waves, 1)).relu()).relu());
    return { density: out.narrow(1, 0, 1).softplus().mul(5), colour: out.narrow(1, 1, 3).sigmoid() };
  }
}

manualSeed(1);
const views = Array.from({ length: settings.views }, (_, i) => camera((2 * Math.PI * i) / settings.views));
const origins = concat(views.map((v) => v.origins), 0).eval(), directions = concat(views.map((v) => v.directions), 0).eval();
const pictures = concat(views.map((v) => render(scene, v.origins, v.directions).eval()), 0).eval();
const model = new Field(), optimizer = optim.adam(model);
const rate = optim.schedule({ kind: "cosine", rate: 0.005, finalRate: 0.0003, steps: settings.steps });
const step = compile((o, d, wanted, learningRate) => {
  const loss = nn.mse(render(model, o, d, rand([settings.rays, settings.samples, 1])), wanted);
  optimizer.step(grad(loss, optimizer), learningRate);
  return loss;
});
const unseen = camera(Math.PI / settings.views), truth = render(scene, unseen.origins, unseen.directions).eval();
const psnr = () => -10 * Math.log10(nn.mse(render(model, unseen.origins, unseen.directions), truth).item());
for (let i = 0; i < settings.steps; ++i) {
  const rows = randint(0, origins.shape[0], [settings.rays]).eval();
  step(origins.get(rows), directions.get(rows), pictures.get(rows), rate(i));
  if ((i + 1) % Math.max(1, Math.floor(settings.steps / 5)) === 0) console.log(`step ${i + 1}  new view ${psnr().toFixed(1)} dB`);
}
const grey = render(model, unseen.origins, unseen.directions).mean([1]).toArray();
for (let y = 0; y < settings.size; y += 2)
  console.log(Array.from({ length: settings.size }, (_, x) => " .:-=+*#%@"[Math.min(9, Math.floor(14 * grey[y * settings.size + x]))]).join(""));
console.log(`new view ${psnr().toFixed(1)} dB; a black picture has ${(-10 * Math.log10(truth.square().mean().item())).toFixed(1)} dB`);
