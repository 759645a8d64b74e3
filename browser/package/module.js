// The WebAssembly module: its memory, its errors, and calls that may wait.
import { ConsoleStdout, File, Directory, OpenFile, PreopenDirectory, WASI } from "./wasi/index.js";
import { webgpuImports } from "./webgpu.js";

/** An error of Weft. `kind` says what is wrong: a shape, a dtype, a device, a file, a usage. */
export class WeftError extends Error {
  constructor(kind, message) {
    super(message);
    this.name = `Weft${kind}Error`;
    this.kind = kind;
  }
}

// By weft_status.
const kinds = ["", "Shape", "DType", "Device", "File", "Usage", "Internal", "Memory", "Handle", "Callback"];

/** Whether this browser can wait inside of WebAssembly, which WebGPU needs. */
export const canSuspend = typeof WebAssembly.Suspending === "function" && typeof WebAssembly.promising === "function";

const encoder = new TextEncoder();
const decoder = new TextDecoder();

/** Memory of a call: freed together when the call is over. */
class Scratch {
  #module;
  #blocks = [];
  constructor(module) {
    this.#module = module;
  }
  allocate(bytes) {
    const at = this.#module.exports.weft_allocate(Math.max(bytes, 8)) >>> 0;
    if (at === 0) throw new WeftError("Memory", `no memory for ${bytes} bytes`);
    this.#blocks.push(at);
    return at;
  }
  bytes(source) {
    const at = this.allocate(source.byteLength);
    this.#module.bytes(at, source.byteLength).set(source);
    return at;
  }
  text(value) {
    const encoded = encoder.encode(value);
    if (encoded.includes(0)) throw new WeftError("Usage", `a text with the character of code 0: ${JSON.stringify(value)}`);
    const at = this.allocate(encoded.length + 1);
    const bytes = this.#module.bytes(at, encoded.length + 1);
    bytes.set(encoded);
    bytes[encoded.length] = 0;
    return at;
  }
  array(Type, values) {
    return this.bytes(new Uint8Array(Type.from(values).buffer));
  }
  free() {
    for (const at of this.#blocks) this.#module.exports.weft_free(at);
    this.#blocks = [];
  }
}

export class Module {
  exports;
  #wasi;
  #root;
  #queue = Promise.resolve();
  #promising = new Map();
  #broken = null;
  #traced = new Map(); // number -> function(handles of arguments) -> handles of results
  #traceError = null;
  #lastTraced = 0;
  #canWait = false; // whether the call in progress is awaited, and no function of JavaScript lies between

  static async instantiate({ wasm, environment = {}, print = () => {}, gpu = globalThis.navigator?.gpu } = {}) {
    const self = new Module();
    const line = ConsoleStdout.lineBuffered(print);
    self.#root = new PreopenDirectory("/", new Map([["tmp", new Directory(new Map())]]));
    // A device of a browser is not measured when it is opened: that would take longer than most pages are open.
    const variables = { WEFT_WEBGPU_PROFILE: "table", ...environment };
    self.#wasi = new WASI(
      [],
      Object.entries(variables).map(([name, value]) => `${name}=${value}`),
      [new OpenFile(new File([])), line, line, self.#root],
      { debug: false },
    );
    const { waitFor, ...webgpu } = webgpuImports({ memory: () => self.exports.memory, gpu: canSuspend ? gpu : undefined });
    const wait = canSuspend ? new WebAssembly.Suspending(waitFor) : waitFor;
    const imports = {
      wasi_snapshot_preview1: self.#wasi.wasiImport,
      webgpu: { ...webgpu, wait, canWait: () => (canSuspend && self.#canWait ? 1 : 0) },
      weft: { trace: (...given) => self.#trace(...given) },
    };
    const instance = await compileAndInstantiate(wasm, imports);
    self.exports = instance.exports;
    self.#wasi.initialize(instance);
    return self;
  }

  bytes(at, count) {
    return new Uint8Array(this.exports.memory.buffer, at >>> 0, count);
  }
  view() {
    return new DataView(this.exports.memory.buffer);
  }
  text(at) {
    at >>>= 0;
    const bytes = new Uint8Array(this.exports.memory.buffer);
    return decoder.decode(bytes.subarray(at, bytes.indexOf(0, at)));
  }
  /** Calls `work` with memory that is freed when it returns. */
  scratch(work) {
    const memory = new Scratch(this);
    try {
      return work(memory);
    } finally {
      memory.free();
    }
  }

  /** A call that does not wait. */
  call(name, ...values) {
    this.#check(this.#guard(() => this.exports[name](...values)));
  }
  /** A call that may wait, with memory that is freed at its end. Such calls run one after another: they share a stack. */
  wait(work) {
    const run = async () => {
      const memory = new Scratch(this);
      try {
        return await work(memory, async (name, ...values) => this.#check(await this.#guardAsync(name, values)));
      } finally {
        if (!this.#broken) memory.free();
      }
    };
    const result = this.#queue.then(run, run);
    this.#queue = result.catch(() => {});
    return result;
  }

  /** Keeps a function that the module may trace; returns its number. */
  addTraced(work) {
    this.#traced.set(++this.#lastTraced, work);
    return this.#lastTraced;
  }
  removeTraced(number) {
    this.#traced.delete(number);
  }

  writeFile(path, bytes) {
    const [folder, name] = this.#place(path);
    folder.contents.set(name, new File(bytes));
  }
  readFile(path) {
    const [folder, name] = this.#place(path);
    const file = folder.contents.get(name);
    if (!(file instanceof File)) throw new WeftError("File", `there is no file ${path}`);
    return file.data;
  }
  removeFile(path) {
    const [folder, name] = this.#place(path);
    folder.contents.delete(name);
  }
  #place(path) {
    const parts = String(path).split("/").filter((part) => part !== "" && part !== ".");
    if (parts.length === 0 || parts.includes(".."))
      throw new WeftError("Usage", `'${path}' names no file: give a path such as /model.gguf`);
    let folder = this.#root.dir;
    for (const part of parts.slice(0, -1)) {
      if (!folder.contents.has(part)) folder.contents.set(part, new Directory(new Map()));
      folder = folder.contents.get(part);
      if (!(folder instanceof Directory)) throw new WeftError("File", `${path}: ${part} is a file`);
    }
    return [folder, parts.at(-1)];
  }

  #usable() {
    if (this.#broken) throw new WeftError("Internal", `the module stopped before: ${this.#broken}; load it again`);
  }
  // A trap leaves the module in an unknown state; errors of Weft never trap.
  #note(error) {
    if (error instanceof WebAssembly.RuntimeError) this.#broken = error.message;
    return error;
  }
  #guard(work) {
    this.#usable();
    const before = this.#canWait;
    this.#canWait = false;
    try {
      return work();
    } catch (error) {
      throw this.#note(error);
    } finally {
      this.#canWait = before;
    }
  }
  async #guardAsync(name, values) {
    this.#usable();
    if (!this.#promising.has(name))
      this.#promising.set(name, canSuspend ? WebAssembly.promising(this.exports[name]) : this.exports[name]);
    this.#canWait = true;
    try {
      return await this.#promising.get(name)(...values);
    } catch (error) {
      throw this.#note(error);
    } finally {
      this.#canWait = false;
    }
  }
  #check(status) {
    if (status === 0) return;
    const thrown = this.#traceError;
    this.#traceError = null;
    if (kinds[status] === "Callback" && thrown) throw thrown;
    throw new WeftError(kinds[status] ?? "Internal", this.text(this.exports.weft_error_message()));
  }
  #trace(number, given, count, results, resultsMax, resultsCount) {
    const before = this.#canWait;
    this.#canWait = false; // a function of JavaScript cannot be suspended
    try {
      const view = this.view();
      const handles = Array.from({ length: count }, (_, i) => view.getBigUint64((given >>> 0) + 8 * i, true));
      const made = this.#traced.get(number)(handles);
      if (made.length > resultsMax) throw new WeftError("Usage", `a function with ${made.length} results; at most ${resultsMax}`);
      const after = this.view();
      made.forEach((handle, i) => after.setBigUint64((results >>> 0) + 8 * i, handle, true));
      after.setUint32(resultsCount, made.length, true);
      return 0;
    } catch (error) {
      this.#traceError = error;
      return kinds.indexOf("Callback");
    } finally {
      this.#canWait = before;
    }
  }
}

async function compileAndInstantiate(wasm, imports) {
  wasm ??= new URL("./weft.wasm", import.meta.url);
  if (wasm instanceof WebAssembly.Module) return WebAssembly.instantiate(wasm, imports);
  if (wasm instanceof ArrayBuffer || ArrayBuffer.isView(wasm)) return (await WebAssembly.instantiate(wasm, imports)).instance;
  const url = wasm instanceof URL ? wasm : new URL(wasm, globalThis.location?.href ?? import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return (await WebAssembly.instantiate(await readFile(url), imports)).instance;
  }
  const response = await fetch(url);
  if (!response.ok) throw new WeftError("File", `${url}: ${response.status} ${response.statusText}`);
  // Servers that do not know the type of .wasm files cannot be compiled from as they arrive.
  return response.headers.get("content-type")?.startsWith("application/wasm")
    ? (await WebAssembly.instantiateStreaming(response, imports)).instance
    : (await WebAssembly.instantiate(await response.arrayBuffer(), imports)).instance;
}
