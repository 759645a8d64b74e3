// Tensors and variables: handles of the module, released when nothing in JavaScript holds them.
import { WeftError } from "./module.js";

// The array that holds a dtype's elements in host form. f16 and bf16 are bits of 16, unless the engine has Float16Array.
export const arrayTypes = {
  f32: Float32Array,
  f64: Float64Array,
  f16: globalThis.Float16Array ?? Uint16Array,
  bf16: Uint16Array,
  i8: Int8Array,
  i16: Int16Array,
  i32: Int32Array,
  i64: BigInt64Array,
  u8: Uint8Array,
  u16: Uint16Array,
  u32: Uint32Array,
  u64: BigUint64Array,
  bool: Uint8Array,
};
export const arrayTypeOf = (dtype) => arrayTypes[dtype] ?? Uint8Array;

const dtypes = new Map([
  [Float32Array, "f32"],
  [Float64Array, "f64"],
  [Int8Array, "i8"],
  [Int16Array, "i16"],
  [Int32Array, "i32"],
  [BigInt64Array, "i64"],
  [Uint8Array, "u8"],
  [Uint8ClampedArray, "u8"],
  [Uint16Array, "u16"],
  [Uint32Array, "u32"],
  [BigUint64Array, "u64"],
]);
if (globalThis.Float16Array) dtypes.set(globalThis.Float16Array, "f16");

/** The elements of nested arrays one after another, and their shape. */
export function flatten(data, elements = [], shape = [], depth = 0) {
  if (!Array.isArray(data)) {
    if (depth !== shape.length) throw new WeftError("Shape", "nested arrays of different depths");
    elements.push(data);
    return { elements, shape };
  }
  if (elements.length === 0 && depth === shape.length) shape.push(data.length);
  else if (shape[depth] !== data.length)
    throw new WeftError("Shape", `nested arrays of different lengths: ${data.length} where ${shape[depth] ?? "none"} came before`);
  for (const each of data) flatten(each, elements, shape, depth + 1);
  return { elements, shape };
}

/** Elements, shape and dtype of what a program gives as data. */
export function readData(data, { shape, dtype } = {}) {
  if (ArrayBuffer.isView(data)) {
    const type = dtypes.get(data.constructor);
    if (!type) throw new WeftError("DType", `a ${data.constructor.name} holds no elements of a tensor`);
    const wanted = dtype ?? type;
    const Type = arrayTypeOf(wanted);
    const same = data.constructor === Type || (wanted === "bool" && type === "u8");
    return { elements: same ? data : convert(Type, data, wanted), shape: shape ?? [data.length], dtype: wanted };
  }
  const given = flatten(data);
  const first = given.elements[0];
  const wanted = dtype ?? (typeof first === "boolean" ? "bool" : typeof first === "bigint" ? "i64" : "f32");
  return { elements: convert(arrayTypeOf(wanted), given.elements, wanted), shape: shape ?? given.shape, dtype: wanted };
}

function convert(Type, elements, dtype) {
  if ((dtype === "f16" && !globalThis.Float16Array) || dtype === "bf16")
    throw new WeftError("DType", `elements of ${dtype} are given as bits in a Uint16Array; or make a tensor of f32 and cast it`);
  const big = Type === BigInt64Array || Type === BigUint64Array;
  return Type.from(elements, big ? (x) => BigInt(x) : (x) => Number(x));
}

const registry = new FinalizationRegistry(({ module, release, handle }) => {
  try {
    module.exports[release](handle);
  } catch {
    // A module that stopped has no handles to release.
  }
});

/** What tensors, variables and the like share: a handle that is released once. */
export class Held {
  #release;
  #handle;
  constructor(weft, handle, release) {
    this.weft = weft;
    this.#handle = handle;
    this.#release = release;
    registry.register(this, { module: weft.module, release, handle }, this);
  }
  get handle() {
    if (this.#handle === 0n) throw new WeftError("Handle", `this ${this.constructor.name} was disposed of`);
    return this.#handle;
  }
  /** Frees it now, and not when the garbage is collected. */
  dispose() {
    if (this.#handle === 0n) return;
    registry.unregister(this);
    this.weft.module.exports[this.#release](this.#handle);
    this.#handle = 0n;
  }
  [Symbol.dispose ?? Symbol.for("dispose")]() {
    this.dispose();
  }
}

export class Tensor extends Held {
  constructor(weft, handle) {
    super(weft, handle, "weft_tensor_release");
  }
  get shape() {
    const { module } = this.weft;
    return module.scratch((memory) => {
      const most = 64;
      const [shape, rank] = [memory.allocate(8 * most), memory.allocate(4)];
      module.call("weft_tensor_shape", this.handle, shape, most, rank);
      const view = module.view();
      return Array.from({ length: view.getUint32(rank, true) }, (_, i) => Number(view.getBigInt64(shape + 8 * i, true)));
    });
  }
  get dtype() {
    return this.weft.text("weft_tensor_dtype", this.handle);
  }
  get device() {
    return this.weft.text("weft_tensor_device", this.handle);
  }
  /** Computes the value. */
  async evaluate() {
    await this.weft.evaluate(this);
    return this;
  }
  /** All elements, row by row, as an array of the dtype. */
  data() {
    const { module } = this.weft;
    const { handle, dtype } = this;
    return module.wait(async (memory, call) => {
      const size = memory.allocate(4);
      module.call("weft_tensor_bytes", handle, size);
      const bytes = module.view().getUint32(size, true);
      const at = memory.allocate(bytes);
      await call("weft_tensor_read", handle, at, bytes);
      return new (arrayTypeOf(dtype))(module.bytes(at, bytes).slice().buffer);
    });
  }
  /** The one element of a tensor with one element. */
  item() {
    const { module } = this.weft;
    const { handle } = this;
    return module.wait(async (memory, call) => {
      const at = memory.allocate(8);
      await call("weft_tensor_item", handle, at);
      return module.view().getFloat64(at, true);
    });
  }
  /** The same value on another device. */
  to(device) {
    const { module } = this.weft;
    const { handle } = this;
    return module.wait(async (memory, call) => {
      const at = memory.allocate(8);
      await call("weft_tensor_to_device", handle, memory.text(device), at);
      return new Tensor(this.weft, module.view().getBigUint64(at, true));
    });
  }
  /** Rows and columns as text. */
  text() {
    const { module } = this.weft;
    const { handle } = this;
    return module.wait(async (memory, call) => {
      const at = memory.allocate(4);
      await call("weft_tensor_text", handle, at);
      return module.text(module.view().getUint32(at, true));
    });
  }
}

export class Variable extends Held {
  constructor(weft, handle) {
    super(weft, handle, "weft_variable_release");
  }
  /** The newest value: a tensor. */
  get value() {
    return this.weft.tensorOf((at) => this.weft.module.call("weft_variable_value", this.handle, at));
  }
  /** Sets what it is next. */
  assign(next) {
    this.weft.module.call("weft_variable_assign", this.handle, next.handle);
  }
}
