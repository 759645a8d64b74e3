// Globals of the web that scripts expect, as far as they need no network and no files. Called with native functions, once, before
// the script runs; gives nothing to the script but globals.
((native) => {
"use strict";
const define = (name, value) =>
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });

// ---- Errors and events ------------------------------------------------------------------------------------------------

class DOMException extends Error {
  #name;
  constructor(message = "", name = "Error") {
    super(message);
    this.#name = String(name);
  }
  get name() { return this.#name; }
}

class Event {
  defaultPrevented = false;
  target = null;
  constructor(type, { cancelable = false } = {}) {
    this.type = String(type);
    this.cancelable = cancelable;
  }
  preventDefault() { if (this.cancelable) this.defaultPrevented = true; }
}

class EventTarget {
  #listeners = [];
  addEventListener(type, listener, { once = false, signal } = {}) {
    if (!listener || signal?.aborted || this.#listeners.some((each) => each.type === type && each.listener === listener)) return;
    this.#listeners.push({ type, listener, once });
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener));
  }
  removeEventListener(type, listener) {
    this.#listeners = this.#listeners.filter((each) => each.type !== type || each.listener !== listener);
  }
  dispatchEvent(event) {
    event.target = this;
    for (const { type, listener, once } of [...this.#listeners]) {
      if (type !== event.type) continue;
      if (once) this.removeEventListener(type, listener);
      if (typeof listener === "function") listener.call(this, event);
      else listener.handleEvent(event);
    }
    const own = this[`on${event.type}`];
    if (typeof own === "function") own.call(this, event);
    return !event.defaultPrevented;
  }
}

const secret = Symbol();
class AbortSignal extends EventTarget {
  aborted = false;
  reason = undefined;
  onabort = null;
  constructor(key) {
    super();
    if (key !== secret) throw new TypeError("Illegal constructor: an AbortController makes signals");
  }
  throwIfAborted() { if (this.aborted) throw this.reason; }
  static abort(reason) {
    const controller = new AbortController();
    controller.abort(reason);
    return controller.signal;
  }
  static timeout(milliseconds) {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(new DOMException("The operation was aborted due to timeout", "TimeoutError")), milliseconds);
    native.release(timer);
    return controller.signal;
  }
  static any(signals) {
    const controller = new AbortController(), list = [...signals];
    const first = list.find((signal) => signal.aborted);
    if (first) controller.abort(first.reason);
    else for (const signal of list) signal.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
    return controller.signal;
  }
}

class AbortController {
  signal = new AbortSignal(secret);
  abort(reason = new DOMException("This operation was aborted", "AbortError")) {
    if (this.signal.aborted) return;
    this.signal.aborted = true;
    this.signal.reason = reason;
    this.signal.dispatchEvent(new Event("abort"));
  }
}

// ---- Texts and bytes --------------------------------------------------------------------------------------------------

const bytesOf = (value) => {
  if (value === undefined) return new Uint8Array();
  if (value instanceof ArrayBuffer) return new Uint8Array(value);
  if (ArrayBuffer.isView(value)) return new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
  throw new TypeError("TextDecoder: the argument is neither an ArrayBuffer nor a view of one");
};

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return native.encode(String(text)); }
  encodeInto(text, target) {
    let read = 0, written = 0;
    for (const character of String(text)) {
      const bytes = native.encode(character);
      if (written + bytes.length > target.length) break;
      target.set(bytes, written);
      read += character.length;
      written += bytes.length;
    }
    return { read, written };
  }
}

const encodings = { "utf-8": "utf-8", utf8: "utf-8", "unicode-1-1-utf-8": "utf-8", "utf-16le": "utf-16le", "utf-16": "utf-16le" };
class TextDecoder {
  #rest = new Uint8Array();
  #begun = false;
  constructor(label = "utf-8", { fatal = false, ignoreBOM = false } = {}) {
    this.encoding = encodings[String(label).trim().toLowerCase()];
    if (!this.encoding) throw new RangeError(`TextDecoder: ${label} is not known; there are utf-8 and utf-16le`);
    this.fatal = fatal;
    this.ignoreBOM = ignoreBOM;
  }
  decode(input, { stream = false } = {}) {
    const fresh = bytesOf(input);
    let bytes = fresh;
    if (this.#rest.length > 0) {
      bytes = new Uint8Array(this.#rest.length + fresh.length);
      bytes.set(this.#rest);
      bytes.set(fresh, this.#rest.length);
    }
    let end = bytes.length;
    if (stream) end -= this.encoding === "utf-8" ? native.unfinished(bytes) : bytes.length % 2;
    this.#rest = bytes.slice(end);
    const text = native.decode(bytes.subarray(0, end), this.encoding === "utf-8", this.fatal);
    const drops = !this.#begun && !this.ignoreBOM && text.startsWith("\ufeff");
    this.#begun = stream && (this.#begun || end > 0);
    return drops ? text.slice(1) : text;
  }
}

const crypto = {
  getRandomValues(array) {
    if (!ArrayBuffer.isView(array) || array instanceof DataView || /^Float/.test(array[Symbol.toStringTag]))
      throw new DOMException("getRandomValues: the argument is not an array of integers", "TypeMismatchError");
    if (array.byteLength > 65536) throw new DOMException("getRandomValues: more than 65536 bytes", "QuotaExceededError");
    new Uint8Array(array.buffer, array.byteOffset, array.byteLength).set(native.random(array.byteLength));
    return array;
  },
  randomUUID() {
    const bytes = native.random(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  },
};

// ---- Copies -----------------------------------------------------------------------------------------------------------

const errorNames = ["EvalError", "RangeError", "ReferenceError", "SyntaxError", "TypeError", "URIError"];
const structuredClone = (value) => {
  const seen = new Map();
  const refuse = (what) => { throw new DOMException(`${what} could not be cloned.`, "DataCloneError"); };
  const copy = (from) => {
    if (typeof from === "function" || typeof from === "symbol") refuse(typeof from === "symbol" ? from.toString() : `The function ${from.name}`);
    if (typeof from !== "object" || from === null) return from;
    if (seen.has(from)) return seen.get(from);
    const keep = (made) => (seen.set(from, made), made);
    const kind = Object.prototype.toString.call(from).slice(8, -1);
    if (from instanceof Date) return keep(new Date(from));
    if (from instanceof RegExp) return keep(new RegExp(from));
    if (from instanceof Map) {
      const made = keep(new Map());
      for (const [key, each] of [...from]) made.set(copy(key), copy(each));
      return made;
    }
    if (from instanceof Set) {
      const made = keep(new Set());
      for (const each of [...from]) made.add(copy(each));
      return made;
    }
    if (from instanceof ArrayBuffer) return keep(from.slice(0));
    if (ArrayBuffer.isView(from)) {
      const buffer = copy(from.buffer);
      return keep(new from.constructor(buffer, from.byteOffset, from instanceof DataView ? from.byteLength : from.length));
    }
    if (from instanceof Error) {
      const made = keep(new (errorNames.includes(from.name) ? globalThis[from.name] : Error)(from.message));
      Object.defineProperty(made, "stack", { value: from.stack, writable: true, configurable: true });
      if ("cause" in from) Object.defineProperty(made, "cause", { value: copy(from.cause), writable: true, configurable: true });
      return made;
    }
    if (["Boolean", "Number", "String", "BigInt"].includes(kind)) return keep(Object(from.valueOf()));
    if (!Array.isArray(from) && (kind !== "Object" || native.isHandle(from))) refuse(native.isHandle(from) && kind === "Object" ? "A tensor or another handle of weft" : `The ${kind}`);
    const made = keep(Array.isArray(from) ? new Array(from.length) : {});
    for (const key of Object.keys(from)) made[key] = copy(from[key]);
    return made;
  };
  return copy(value);
};

// ---- Replies of fetch -------------------------------------------------------------------------------------------------

class Headers {
  #list = new Map();
  constructor(given = {}) {
    for (const [name, value] of given[Symbol.iterator] ? given : Object.entries(given)) this.append(name, value);
  }
  append(name, value) {
    const key = String(name).toLowerCase(), before = this.#list.get(key);
    this.#list.set(key, before === undefined ? String(value).trim() : `${before}, ${String(value).trim()}`);
  }
  set(name, value) { this.#list.set(String(name).toLowerCase(), String(value).trim()); }
  get(name) { return this.#list.get(String(name).toLowerCase()) ?? null; }
  has(name) { return this.#list.has(String(name).toLowerCase()); }
  delete(name) { this.#list.delete(String(name).toLowerCase()); }
  forEach(call, self) { for (const [name, value] of this) call.call(self, value, name, this); }
  *entries() { yield* [...this.#list].sort(([a], [b]) => (a < b ? -1 : 1)); }
  *keys() { for (const [name] of this) yield name; }
  *values() { for (const [, value] of this) yield value; }
  [Symbol.iterator]() { return this.entries(); }
}

class Response {
  #bytes;
  bodyUsed = false;
  constructor(body = "", { status = 200, statusText = "", headers = {}, url = "" } = {}) {
    this.#bytes = typeof body === "string" ? native.encode(body) : bytesOf(body);
    Object.assign(this, { status, statusText, url, headers: new Headers(headers), ok: status >= 200 && status < 300 });
  }
  async bytes() {
    if (this.bodyUsed) throw new TypeError("Response: the body has been read already");
    this.bodyUsed = true;
    return this.#bytes;
  }
  async arrayBuffer() { return (await this.bytes()).slice().buffer; }
  async text() { return new TextDecoder().decode(await this.bytes()); }
  async json() { return JSON.parse(await this.text()); }
}

const fetch = async (url, { method = "GET", headers = {}, body, signal } = {}) => {
  signal?.throwIfAborted();
  const plain = Object.fromEntries(new Headers(headers));
  const text = body === undefined || body === null ? "" : typeof body === "string" ? body : body instanceof URLSearchParams ? String(body) : null;
  if (text === null) throw new TypeError("fetch: the body is neither a string nor URLSearchParams");
  if (body instanceof URLSearchParams) plain["content-type"] ??= "application/x-www-form-urlencoded;charset=UTF-8";
  const reply = native.fetch(String(url), { method: method.toUpperCase(), headers: plain, body: text });
  const aborted = signal && new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
  const { status, headers: got, bytes } = await (aborted ? Promise.race([reply, aborted]) : reply);
  return new Response(bytes, { status, headers: got, url: String(url) });
};

// ---- The console ------------------------------------------------------------------------------------------------------

const { log, error } = console;
const times = new Map(), counts = new Map();
const shown = (milliseconds) => (milliseconds < 1000 ? `${milliseconds.toFixed(3)}ms` : `${(milliseconds / 1000).toFixed(3)}s`);
Object.assign(console, {
  assert(holds, ...values) {
    if (holds) return;
    if (typeof values[0] === "string") values[0] = `Assertion failed: ${values[0]}`;
    else values.unshift("Assertion failed");
    error(...values);
  },
  count(label = "default") {
    counts.set(label, (counts.get(label) ?? 0) + 1);
    log(`${label}: ${counts.get(label)}`);
  },
  countReset(label = "default") { counts.delete(label); },
  dir(value) { log(value); },
  group(...values) {
    if (values.length > 0) log(...values);
    native.indent(2);
  },
  groupEnd() { native.indent(-2); },
  time(label = "default") { times.set(label, performance.now()); },
  timeLog(label = "default", ...values) {
    if (times.has(label)) log(`${label}: ${shown(performance.now() - times.get(label))}`, ...values);
  },
  timeEnd(label = "default") {
    console.timeLog(label);
    times.delete(label);
  },
  trace(...values) { error("Trace:", ...values, "\n" + new Error().stack.split("\n").slice(1).join("\n").trimEnd()); },
  table(rows) {
    if (typeof rows !== "object" || rows === null) return log(rows);
    const names = [], lines = [];
    for (const [index, row] of rows instanceof Map ? rows : Object.entries(rows)) {
      const isRow = typeof row === "object" && row !== null, cells = new Map([["(index)", String(index)]]);
      for (const [name, value] of isRow ? Object.entries(row) : [["Values", row]]) {
        if (!names.includes(name)) names.push(name);
        cells.set(name, native.inspect(value));
      }
      lines.push(cells);
    }
    if (names.includes("Values")) names.push(names.splice(names.indexOf("Values"), 1)[0]);
    const columns = ["(index)", ...names];
    const widths = columns.map((name) => Math.max(name.length, ...lines.map((cells) => (cells.get(name) ?? "").length)) + 2);
    const rule = (left, middle, right) => left + widths.map((width) => "─".repeat(width)).join(middle) + right;
    const line = (cells) => "│" + cells.map((cell, i) => ` ${cell}`.padEnd(widths[i])).join("│") + "│";
    log([rule("┌", "┬", "┐"), line(columns), rule("├", "┼", "┤"), ...lines.map((cells) => line(columns.map((name) => cells.get(name) ?? ""))),
         rule("└", "┴", "┘")].join("\n"));
  },
});

for (const [name, value] of Object.entries({
  DOMException, Event, EventTarget, AbortSignal, AbortController, TextEncoder, TextDecoder, crypto, structuredClone, Headers, Response, fetch,
})) define(name, value);
})
