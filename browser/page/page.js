// The page: trains a small GPT on a text, and talks with a language model. Everything happens in this browser.
import { load, canSuspend } from "../package/index.js";

const at = (id) => document.getElementById(id);
const [device, status, progress, sample, answer] = ["device", "status", "progress", "sample", "answer"].map(at);
const show = (error) => {
  status.textContent = error.message;
  console.error(error);
};

at("text").value = (
  "Tyger Tyger, burning bright,\nIn the forests of the night;\nWhat immortal hand or eye,\n" +
  "Could frame thy fearful symmetry?\n\n"
).repeat(20);

const weft = await load();
const devices = ["cpu"];
if (canSuspend && (await navigator.gpu?.requestAdapter())) devices.unshift("webgpu:0");
for (const name of devices) device.append(new Option(name === "cpu" ? "CPU" : "WebGPU", name));
device.value = new URLSearchParams(location.search).get("device") ?? devices[0];
status.textContent = devices.length > 1 ? "ready" : "ready; this browser has no WebGPU that Weft can use";

let trainer = null;
let isStopped = false;

function draw(losses) {
  const top = Math.max(...losses);
  const points = losses.map((loss, i) => `${(600 * i) / Math.max(losses.length - 1, 1)},${155 - (150 * loss) / top}`);
  at("curve").querySelector("path").setAttribute("d", `M${points.join("L")}`);
}

async function train(steps) {
  isStopped = false;
  at("train").disabled = true;
  at("stop").disabled = false;
  try {
    await weft.useDevice(device.value);
    status.textContent = "compiling the first step";
    trainer?.dispose();
    trainer = await weft.trainText(at("text").value, { preset: "tiny", steps });
    const losses = [];
    const start = performance.now();
    for (let step = 1; step <= steps && !isStopped; ++step) {
      losses.push(await trainer.step());
      progress.textContent = `step ${step} of ${steps}, loss ${losses.at(-1).toFixed(3)}, ${((1000 * step) / (performance.now() - start)).toFixed(1)} steps a second`;
      // A calculation on the CPU never gives way by itself.
      await new Promise((resolve) => setTimeout(resolve));
      if (step % 10 === 0 || step === steps) draw(losses);
      if (step % 50 === 0 || step === steps) sample.textContent = await trainer.generate(at("text").value.slice(0, 8), { maxTokens: 120 });
    }
    at("save").disabled = false;
    status.textContent = "ready";
    return { losses, sample: sample.textContent };
  } finally {
    at("train").disabled = false;
    at("stop").disabled = true;
  }
}
at("train").onclick = () => train(Number(at("steps").value)).catch(show);
at("stop").onclick = () => (isStopped = true);
at("save").onclick = async () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([await trainer.save()]));
  link.download = "checkpoint.safetensors";
  link.click();
  URL.revokeObjectURL(link.href);
};

let model = null;
async function open(source) {
  status.textContent = "loading the model";
  model?.dispose();
  model = null;
  model = await weft.loadModel(source, { device: device.value, context: 1024 });
  at("description").textContent = model.describe();
  for (const each of at("chat").elements) each.disabled = false;
  status.textContent = "ready";
}
at("file").onchange = ({ target }) => target.files[0] && open(target.files[0]).catch(show);
at("load").onclick = () => open(at("address").value).catch(show);

const messages = [];
async function ask(question, options) {
  messages.push({ role: "user", content: question });
  answer.textContent = "";
  for await (const piece of model.chat(messages, options)) {
    answer.textContent += piece;
    await new Promise((resolve) => setTimeout(resolve));
  }
  messages.push({ role: "assistant", content: answer.textContent });
  return answer.textContent;
}
at("chat").onsubmit = (event) => {
  event.preventDefault();
  ask(at("question").value, { maxTokens: 300 }).catch(show);
};

// For the console, and for tests.
globalThis.page = { weft, train, open, ask };
