// Makes more words: a GPT over characters learns the names and words of a text, and invents others like them.
//   weft run makemore.js --allow-read .        with moby-dick.txt beside it (docs/gallery.md)
import { files, tensor, randint, multinomial, compile, grad, manualSeed, nn, optim } from "weft";

const settings = { steps: 1500, batch: 64, words: 6000, width: 64, made: 20,
  ...(files.exists("settings.json") ? JSON.parse(files.readText("settings.json")) : {}) };

// Words that begin with a capital in the middle of a sentence: names of people, ships and places; then all others.
const text = files.readText("moby-dick.txt");
const names = [...new Set([...text.matchAll(/[a-z,;] ([A-Z][a-z]{2,11})\b/g)].map(([, name]) => name.toLowerCase()))];
const others = [...new Set(text.toLowerCase().match(/\b[a-z]{4,12}\b/g))];
const words = [...new Set([...names, ...others])].slice(0, settings.words), known = new Set(words);

// Each word as 14 tokens: 0 begins and ends it, 1 to 26 are letters. What follows the end does not count.
const length = 14;
const rows = new Int32Array(words.length * length), wanted = new Int32Array(words.length * length).fill(-1);
words.forEach((word, i) => {
  for (let j = 0; j <= word.length; ++j) {
    rows[i * length + j] = j === 0 ? 0 : word.charCodeAt(j - 1) - 96;
    wanted[i * length + j] = j === word.length ? 0 : word.charCodeAt(j) - 96;
  }
});
const inputs = tensor(rows, { shape: [words.length, length] }), targets = tensor(wanted, { shape: [words.length, length] });
const split = Math.floor(0.9 * words.length);

manualSeed(1);
const model = nn.gpt({ vocabulary: 27, context: length, layers: 3, heads: 4, width: settings.width, dropout: 0.1 });
const optimizer = optim.adamW(model, { clipNorm: 1 });
const rate = optim.schedule({ kind: "cosine", rate: 0.003, finalRate: 0.0002, steps: settings.steps, warmUp: Math.min(100, settings.steps / 4) });
const lossOf = (x, y) => nn.crossEntropy(model(x).reshape([-1, 27]), y.reshape([-1]), { ignoreIndex: -1 });
const step = compile((x, y, learningRate) => {
  const loss = lossOf(x, y);
  optimizer.step(grad(loss, optimizer), learningRate);
  return loss;
});
const order = words.map((_, i) => (i * 7919) % words.length);  // the same shuffle each time
const pick = (from, to) => tensor(Int32Array.from(order.slice(from, to)));
const held = pick(split, words.length);
const test = () => {
  model.eval();
  const loss = lossOf(inputs.get(held), targets.get(held)).item();
  model.train();
  return loss;
};
const shuffled = pick(0, split);
for (let i = 0; i < settings.steps; ++i) {
  const batch = shuffled.get(randint(0, split, [settings.batch]).eval()).eval();
  const loss = step(inputs.get(batch), targets.get(batch), rate(i));
  if ((i + 1) % Math.max(1, Math.floor(settings.steps / 5)) === 0)
    console.log(`step ${i + 1}  loss ${loss.item().toFixed(3)}  test ${test().toFixed(3)}`);
}

// All words at once, a letter at a time.
model.eval();
let made = Array.from({ length: settings.made }, () => [0]);
for (let j = 0; j < length - 1; ++j) {
  const x = tensor(Int32Array.from(made.flatMap((word) => [...word, ...new Array(length - word.length).fill(0)])), { shape: [settings.made, length] });
  const next = multinomial(model(x).get(null, j).softmax(-1), 1).reshape([-1]).toArray();
  made = made.map((word, i) => [...word, j > 0 && word[j] === 0 ? 0 : next[i]]);
}
const letters = made.map((word) => { const end = word.indexOf(0, 1); return word.slice(1, end < 0 ? undefined : end).map((c) => String.fromCharCode(96 + c)).join(""); });
console.log(letters.join(" "));
console.log(`test loss ${test().toFixed(3)}; ${letters.filter((word) => !known.has(word)).length} of ${letters.length} words are new`);
