// Weft in a browser, or in Node.js: docs/browser.md.
import { Module, WeftError, canSuspend } from "./module.js";
import { Held, Tensor, Variable, readData } from "./tensor.js";
import { makeOp, readTable } from "./ops.js";

export { Tensor, Variable, WeftError, canSuspend };

/** An optimiser over variables. */
export class Optimizer extends Held {
  constructor(weft, handle, parameters) {
    super(weft, handle, "weft_browser_optimizer_release");
    this.parameters = parameters;
  }
  /** Sets the parameters' next values; returns the norm of the gradients. */
  step(gradients) {
    const { module } = this.weft;
    return module.scratch((memory) => {
      const list = memory.array(BigUint64Array, gradients.map((each) => each.handle));
      return this.weft.tensorOf((at) => module.call("weft_browser_optimizer_step", this.handle, list, gradients.length, at));
    });
  }
  /** The learning rate of the next steps, also of a step that is compiled. */
  setLearningRate(rate) {
    return this.weft.module.wait((memory, call) => call("weft_browser_optimizer_set_learning_rate", this.handle, rate));
  }
}

/** The training of a small GPT on a text. */
export class TextTrainer extends Held {
  constructor(weft, handle) {
    super(weft, handle, "weft_browser_trainer_release");
  }
  /** One step; resolves to the loss of its batch. */
  step() {
    return this.weft.module.wait(async (memory, call) => {
      const loss = memory.allocate(8);
      await call("weft_browser_trainer_step", this.handle, loss);
      return this.weft.module.view().getFloat64(loss, true);
    });
  }
  /** What the model writes after the prompt. */
  generate(prompt, { maxTokens = 100, temperature = NaN, seed = NaN } = {}) {
    return this.weft.module.wait(async (memory, call) => {
      const text = memory.allocate(4);
      await call("weft_browser_trainer_generate", this.handle, memory.text(prompt), maxTokens, temperature, seed, text);
      return this.weft.module.text(this.weft.module.view().getUint32(text, true));
    });
  }
  /** A checkpoint, as the bytes of a safetensors file. */
  save() {
    const path = "/tmp/checkpoint.safetensors";
    return this.weft.module.wait(async (memory, call) => {
      await call("weft_browser_trainer_save", this.handle, memory.text(path));
      const bytes = this.weft.module.readFile(path);
      this.weft.module.removeFile(path);
      return bytes;
    });
  }
}

const samplingOf = ({ maxTokens, temperature, topK, topP, minP, seed } = {}) =>
  [maxTokens, temperature, topK, topP, minP, seed].map((each) => each ?? NaN);

/** A language model. */
export class LanguageModel extends Held {
  constructor(weft, handle) {
    super(weft, handle, "weft_browser_model_release");
  }
  /** Architecture and sizes. */
  describe() {
    return this.weft.text("weft_browser_model_describe", this.handle);
  }
  /** The pieces of a text that continues the prompt. */
  generate(prompt, options) {
    return this.#pieces((memory, call, at) =>
      call("weft_browser_generate", this.handle, memory.text(prompt), memory.array(Float64Array, samplingOf(options)), at),
    );
  }
  /** The pieces of the reply to messages {role, content}. */
  chat(messages, options) {
    return this.#pieces((memory, call, at) => {
      const texts = messages.flatMap(({ role, content }) => [memory.text(role), memory.text(content)]);
      const list = memory.array(Uint32Array, texts);
      return call("weft_browser_chat", this.handle, list, texts.length, memory.array(Float64Array, samplingOf(options)), at);
    });
  }
  async *#pieces(begin) {
    const { module } = this.weft;
    const generation = await module.wait(async (memory, call) => {
      const at = memory.allocate(8);
      await begin(memory, call, at);
      return module.view().getBigUint64(at, true);
    });
    try {
      while (true) {
        const piece = await module.wait(async (memory, call) => {
          const at = memory.allocate(4);
          await call("weft_browser_generation_next", generation, at);
          const text = module.view().getUint32(at, true);
          return text === 0 ? null : module.text(text);
        });
        if (piece === null) return;
        if (piece !== "") yield piece;
      }
    } finally {
      await module.wait(async (memory, call) => call("weft_browser_generation_release", generation));
    }
  }
}

const camelCase = (name) => name.replace(/_(.)/g, (_, letter) => letter.toUpperCase()); // beta_1: beta1

/** One module with its tensors. */
export class Weft {
  constructor(module) {
    this.module = module;
    this.table = readTable(module);
    this.optimizers = JSON.parse(this.text("weft_browser_optimizers")).map((row) => ({
      ...row,
      options: row.options.map((option) => ({ ...option, key: option.name, name: camelCase(option.name) })),
    }));
    this.ops = Object.create(null);
    for (const row of this.table) {
      const op = makeOp(this, row);
      this.ops[row.name] = op;
      if (row.inputs.length > 0 && !(row.name in Tensor.prototype))
        Object.defineProperty(Tensor.prototype, row.name, {
          configurable: true,
          writable: true,
          value(...values) {
            return this.weft.ops[row.name](this, ...values);
          },
        });
    }
  }

  /** Makes the device that new tensors go to: "cpu", "webgpu", "webgpu:0", or "auto". */
  useDevice(device) {
    if (device === "auto" && !canSuspend) device = "cpu";
    if (device !== "cpu" && !canSuspend)
      throw new WeftError("Device", `${device}: WebAssembly of this JavaScript engine cannot wait (JSPI); use the device cpu`);
    return this.module.wait((memory, call) => call("weft_set_default_device", memory.text(device)));
  }
  manualSeed(seed) {
    return this.module.wait((memory, call) => call("weft_manual_seed", seed));
  }

  /** A tensor of a typed array, of nested arrays, or of a number. */
  tensor(data, options = {}) {
    const { elements, shape, dtype } = readData(data, options);
    const bytes = new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
    return this.module.wait(async (memory, call) => {
      const device = options.device ? memory.text(options.device) : 0;
      const at = memory.allocate(8);
      const extents = memory.array(BigInt64Array, shape.map(BigInt));
      await call("weft_tensor_from_memory", memory.bytes(bytes), bytes.length, extents, shape.length, memory.text(dtype), device, at);
      return new Tensor(this, this.module.view().getBigUint64(at, true));
    });
  }
  /** `value` everywhere; nothing is computed before it is asked for. */
  full(value, shape, { dtype = "f32", device } = {}) {
    return this.module.scratch((memory) => {
      const extents = memory.array(BigInt64Array, shape.map(BigInt));
      const on = device ? memory.text(device) : 0;
      return this.tensorOf((at) => this.module.call("weft_tensor_full", value, extents, shape.length, memory.text(dtype), on, at));
    });
  }
  zeros(shape, options) {
    return this.full(0, shape, options);
  }
  ones(shape, options) {
    return this.full(1, shape, options);
  }
  variable(initial, { name = "", requiresGrad = true } = {}) {
    return this.module.wait(async (memory, call) => {
      const at = memory.allocate(8);
      await call("weft_variable_create", initial.handle, memory.text(name), requiresGrad ? 1 : 0, at);
      return new Variable(this, this.module.view().getBigUint64(at, true));
    });
  }
  /** Computes tensors in one run. */
  evaluate(...tensors) {
    const handles = tensors.map((each) => each.handle);
    return this.module.wait((memory, call) => call("weft_evaluate", memory.array(BigUint64Array, handles), handles.length));
  }
  /** d output / d input for each input: tensors, or variables for their values. */
  gradient(output, inputs, seed) {
    const values = inputs.map((each) => (each instanceof Variable ? each.value : each));
    return this.module.scratch((memory) => {
      const list = memory.array(BigUint64Array, values.map((each) => each.handle));
      const results = memory.allocate(8 * Math.max(values.length, 1));
      this.module.call("weft_gradient", output.handle, list, values.length, seed?.handle ?? 0n, results);
      return this.tensorsAt(results, values.length);
    });
  }
  /** A function of tensors that is traced once for each shape, and then replayed. */
  compile(work) {
    let isList = false;
    const number = this.module.addTraced((handles) => {
      // The arguments are the module's; copies of their handles live as long as JavaScript holds them.
      const given = handles.map((handle) => this.tensorOf((at) => this.module.call("weft_tensor_share", handle, at)));
      const made = work(...given);
      if (made instanceof Promise) throw new WeftError("Usage", "a function that is compiled returns tensors, not a promise of them");
      isList = Array.isArray(made);
      return (isList ? made : [made]).map((each) => {
        if (!(each instanceof Tensor)) throw new WeftError("Usage", `a function that is compiled returns tensors, not ${typeof each}`);
        return this.module.scratch((memory) => {
          const at = memory.allocate(8);
          this.module.call("weft_tensor_share", each.handle, at);
          return this.module.view().getBigUint64(at, true);
        });
      });
    });
    const handle = this.module.scratch((memory) => {
      const at = memory.allocate(8);
      this.module.call("weft_browser_compile", number, at);
      return this.module.view().getBigUint64(at, true);
    });
    const compiled = (...values) =>
      this.module.wait(async (memory, call) => {
        const most = 1024;
        const list = memory.array(BigUint64Array, values.map((each) => each.handle));
        const [results, count] = [memory.allocate(8 * most), memory.allocate(4)];
        await call("weft_function_call", handle, list, values.length, results, most, count);
        const made = this.tensorsAt(results, this.module.view().getUint32(count, true));
        return isList ? made : made[0];
      });
    compiled.explain = ({ source = false } = {}) => this.text("weft_function_explain", handle, source ? 1 : 0);
    compiled.dispose = () => {
      this.module.exports.weft_function_release(handle);
      this.module.removeTraced(number);
    };
    return compiled;
  }

  /** An optimiser of the table `optimizers`: "SGD", "AdamW", "RMSprop", "Lion", ... */
  optimizer(kind, parameters, options = {}) {
    const row = this.optimizers.find(({ title }) => title.toLowerCase() === kind.toLowerCase());
    const given = {};
    for (const [name, value] of Object.entries(row ? options : {})) {
      const option = row.options.find((each) => each.name === name);
      if (!option)
        throw new WeftError("Usage", `${row.title} has no option '${name}'; it has ${row.options.map((each) => each.name).join(", ")}`);
      if (value === undefined) continue;
      if (typeof value !== typeof option.standard || Number.isNaN(value))
        throw new WeftError("Usage", `${row.title}: ${name} is ${typeof option.standard === "boolean" ? "true or false" : "a number"}; ${value} was given`);
      given[option.key] = value;
    }
    return this.module.wait(async (memory, call) => {
      const list = memory.array(BigUint64Array, parameters.map((each) => each.handle));
      const at = memory.allocate(8);
      await call("weft_browser_optimizer_create", memory.text(kind), memory.text(JSON.stringify(given)), list, parameters.length, at);
      return new Optimizer(this, this.module.view().getBigUint64(at, true), parameters);
    });
  }

  /** Tensors by name from a file's bytes; the end of `name` says the format. */
  load(bytes, name, { device } = {}) {
    const path = `/tmp/${name}`;
    return this.module.wait(async (memory, call) => {
      this.module.writeFile(path, bytes);
      const at = memory.allocate(8);
      try {
        await call("weft_load", memory.text(path), device ? memory.text(device) : 0, at);
        const archive = this.module.view().getBigUint64(at, true);
        const tensors = new Map();
        this.module.call("weft_archive_count", archive, at);
        const count = this.module.view().getUint32(at, true);
        const [key, handle] = [memory.allocate(4), memory.allocate(8)];
        for (let i = 0; i < count; ++i) {
          this.module.call("weft_archive_at", archive, i, key, handle);
          const view = this.module.view();
          tensors.set(this.module.text(view.getUint32(key, true)), new Tensor(this, view.getBigUint64(handle, true)));
        }
        this.module.call("weft_archive_release", archive);
        return tensors;
      } finally {
        this.module.removeFile(path);
      }
    });
  }
  /** The bytes of a file with these tensors: an object, or a Map. */
  save(tensors, name) {
    const entries = [...(tensors instanceof Map ? tensors : Object.entries(tensors))];
    const path = `/tmp/${name}`;
    return this.module.wait(async (memory, call) => {
      const names = memory.array(Uint32Array, entries.map(([key]) => memory.text(key)));
      const handles = memory.array(BigUint64Array, entries.map(([, value]) => value.handle));
      await call("weft_save", memory.text(path), names, handles, entries.length);
      const bytes = this.module.readFile(path);
      this.module.removeFile(path);
      return bytes;
    });
  }

  /** Begins the training of a GPT on a text, on the default device. */
  trainText(text, { preset = "tiny", steps = 200, learningRate, batch, context, layers, heads, width, seed } = {}) {
    const path = "/tmp/text.txt";
    const numbers = [steps, learningRate, batch, context, layers, heads, width, seed].map((each) => each ?? NaN);
    return this.module.wait(async (memory, call) => {
      this.module.writeFile(path, new TextEncoder().encode(text));
      const at = memory.allocate(8);
      try {
        await call("weft_browser_trainer_create", memory.text(path), memory.text(preset), memory.array(Float64Array, numbers), at);
      } finally {
        this.module.removeFile(path);
      }
      return new TextTrainer(this, this.module.view().getBigUint64(at, true));
    });
  }
  /** A language model from a GGUF file: its bytes, a Blob such as a File, or a URL. */
  async loadModel(source, { device, context = 0 } = {}) {
    const bytes = await bytesOf(source);
    const path = "/tmp/model.gguf";
    return this.module.wait(async (memory, call) => {
      this.module.writeFile(path, bytes);
      const at = memory.allocate(8);
      try {
        await call("weft_browser_model_load", memory.text(path), device ? memory.text(device) : 0, context, at);
      } finally {
        this.module.removeFile(path);
      }
      return new LanguageModel(this, this.module.view().getBigUint64(at, true));
    });
  }

  /** Handles that were not released yet. */
  get liveHandles() {
    return this.module.exports.weft_live_handles();
  }

  // For the classes of this package.
  text(name, ...values) {
    return this.module.scratch((memory) => {
      const at = memory.allocate(4);
      this.module.call(name, ...values, at);
      return this.module.text(this.module.view().getUint32(at, true));
    });
  }
  tensorOf(work) {
    return this.module.scratch((memory) => {
      const at = memory.allocate(8);
      work(at);
      return new Tensor(this, this.module.view().getBigUint64(at, true));
    });
  }
  tensorsAt(at, count) {
    const view = this.module.view();
    const handles = Array.from({ length: count }, (_, i) => view.getBigUint64(at + 8 * i, true));
    return handles.map((handle) => new Tensor(this, handle));
  }
}

async function bytesOf(source) {
  if (source instanceof Uint8Array) return source;
  if (source instanceof ArrayBuffer) return new Uint8Array(source);
  if (typeof Blob !== "undefined" && source instanceof Blob) return new Uint8Array(await source.arrayBuffer());
  const response = await fetch(source);
  if (!response.ok) throw new WeftError("File", `${source}: ${response.status} ${response.statusText}`);
  return new Uint8Array(await response.arrayBuffer());
}

/** Loads the module. `device` is where new tensors go: "cpu" unless it is given. */
export async function load({ device = "cpu", ...options } = {}) {
  const weft = new Weft(await Module.instantiate(options));
  await weft.useDevice(device);
  return weft;
}
