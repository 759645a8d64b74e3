// Balances a pole on a cart by policy gradient (REINFORCE with a baseline). The physics is that of Barto, Sutton and Anderson 1983.
//   weft run cartpole.js                       a settings.json and --allow-read . change the settings
import { files, tensor, compile, grad, manualSeed, nn, optim } from "weft";

let given = {};
try { given = JSON.parse(files.readText("settings.json")); } catch { /* the defaults */ }
const settings = { rounds: 60, carts: 32, stepsMax: 500, ...given };

// A small generator of random numbers, so that a run can be repeated.
let seed = 1;
const random = () => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return seed / 2 ** 32; };

class Cart {
  state = Array.from({ length: 4 }, () => 0.1 * random() - 0.05);  // place, speed, angle, turning speed
  steps = 0;
  fallen = false;
  push(right) {
    let [x, v, a, w] = this.state;
    const force = right ? 10 : -10, sin = Math.sin(a), cos = Math.cos(a);
    const part = (force + 0.05 * w * w * sin) / 1.1;
    const turning = (9.8 * sin - cos * part) / (0.5 * (4 / 3 - (0.1 * cos * cos) / 1.1)), speeding = part - (0.05 * turning * cos) / 1.1;
    this.state = [x + 0.02 * v, v + 0.02 * speeding, a + 0.02 * w, w + 0.02 * turning];
    this.fallen = ++this.steps >= settings.stepsMax || Math.abs(this.state[0]) > 2.4 || Math.abs(this.state[2]) > 0.2095;
  }
}

manualSeed(1);
const policy = nn.sequential(nn.linear(4, 64), (x) => x.tanh(), nn.linear(64, 2));
const optimizer = optim.adam(policy, { learningRate: 0.01, clipNorm: 1 });
const choose = compile((x) => policy(x).softmax(-1));
const learn = compile((x, action, advantage) => {
  const chosen = policy(x).logSoftmax(-1).gather(action.reshape([-1, 1]), 1).reshape([-1]);
  const loss = chosen.mul(advantage).mean().neg();
  optimizer.step(grad(loss, optimizer));
  return loss;
});

// Every cart runs until its pole falls; all that still run are looked at together.
function play(isGreedy) {
  const carts = Array.from({ length: settings.carts }, () => new Cart()), seen = [], done = [], owners = [];
  while (carts.some((cart) => !cart.fallen)) {
    const chances = choose(tensor(carts.map((cart) => cart.state))).toArray();
    carts.forEach((cart, i) => {
      if (cart.fallen) return;
      const right = isGreedy ? chances[i][1] > 0.5 : random() < chances[i][1];
      seen.push(cart.state);
      done.push(right ? 1 : 0);
      owners.push([i, cart.steps]);
      cart.push(right);
    });
  }
  return { carts, seen, done, owners, mean: carts.reduce((sum, cart) => sum + cart.steps, 0) / carts.length };
}

const size = 4096;  // of a batch, so that one plan serves all rounds
for (let round = 1; round <= settings.rounds; ++round) {
  const { carts, seen, done, owners, mean } = play(false);
  // What is still to come, discounted, and centred over all.
  const returns = owners.map(([i, at]) => (1 - 0.99 ** (carts[i].steps - at)) / 0.01);
  const centre = returns.reduce((a, b) => a + b) / returns.length;
  const spread = Math.sqrt(returns.reduce((sum, r) => sum + (r - centre) ** 2, 0) / returns.length) + 1e-6;
  const rows = Array.from({ length: size }, () => Math.floor(random() * seen.length));
  for (let i = 0; i < 2; ++i)
    learn(tensor(rows.map((row) => seen[row])), tensor(Int32Array.from(rows, (row) => done[row])), tensor(rows.map((row) => (returns[row] - centre) / spread)));
  if (round % Math.max(1, Math.floor(settings.rounds / 6)) === 0) console.log(`round ${round}  mean of ${settings.carts} carts: ${mean.toFixed(0)} steps`);
}
console.log(`balanced for ${play(true).mean.toFixed(0)} of ${settings.stepsMax} steps without chance`);
