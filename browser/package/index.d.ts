/** Weft in a browser, or in Node.js. docs/browser.md tells how to use it. */
import type { Ops, Optimizers, TensorOps } from "./ops.js";

export type Device = "cpu" | "auto" | "webgpu" | `webgpu:${number}`;
export type DType =
  | "f32" | "f64" | "f16" | "bf16" | "i8" | "i16" | "i32" | "i64" | "u8" | "u16" | "u32" | "u64" | "bool" | (string & {});
/** Elements in host form. f16 and bf16 are the bits of each element, unless the engine has Float16Array. */
export type Elements =
  | Float32Array | Float64Array | Int8Array | Int16Array | Int32Array | BigInt64Array
  | Uint8Array | Uint16Array | Uint32Array | BigUint64Array;
export type Nested = number | bigint | boolean | Nested[];

/** Whether this JavaScript engine can wait inside of WebAssembly (JSPI), which WebGPU needs. */
export const canSuspend: boolean;

export class WeftError extends Error {
  /** What is wrong. "Callback": a function that is compiled failed; then its own error is thrown instead. */
  readonly kind: "Shape" | "DType" | "Device" | "File" | "Usage" | "Internal" | "Memory" | "Handle" | "Callback";
}

declare class Held {
  readonly weft: Weft;
  /** Frees it now, and not when the garbage is collected. Later uses throw a WeftError of the kind "Handle". */
  dispose(): void;
}

/** A value of known shape, dtype and device; it never changes, and is computed when it is asked for. */
export class Tensor extends Held {
  readonly shape: number[];
  readonly dtype: DType;
  readonly device: string;
  /** Computes the value. */
  evaluate(): Promise<this>;
  /** All elements, row by row. */
  data(): Promise<Elements>;
  /** The one element of a tensor with one element. */
  item(): Promise<number>;
  /** The same value on another device. */
  to(device: Device): Promise<Tensor>;
  /** Rows and columns as text. */
  text(): Promise<string>;
}
/** Each op that takes a tensor is a method too. */
export interface Tensor extends TensorOps {}

/** State that changes: a parameter, a moment, a counter. */
export class Variable extends Held {
  /** The newest value. */
  readonly value: Tensor;
  /** Sets what it is next; computed at the next evaluation. */
  assign(next: Tensor): void;
}

export class Optimizer extends Held {
  readonly parameters: Variable[];
  /** Sets the parameters' next values, from one gradient for each; returns the norm of the gradients. */
  step(gradients: Tensor[]): Tensor;
  /** The learning rate of the next steps, also of a step that is compiled. */
  setLearningRate(rate: number): Promise<void>;
}

export interface TextTrainingOptions {
  /** "tiny", "small", ...: the presets of `weft train text`. */
  preset?: string;
  /** Steps that are planned, for the learning rate; more can be made. */
  steps?: number;
  learningRate?: number;
  batch?: number;
  context?: number;
  layers?: number;
  heads?: number;
  width?: number;
  seed?: number;
}
/** The training of a small GPT on a text. */
export class TextTrainer extends Held {
  /** One step; resolves to the loss of its batch, in nats a character. */
  step(): Promise<number>;
  /** What the model writes after the prompt. */
  generate(prompt: string, options?: { maxTokens?: number; temperature?: number; seed?: number }): Promise<string>;
  /** A checkpoint as the bytes of a safetensors file, which the command `weft generate` reads. */
  save(): Promise<Uint8Array>;
}

export interface GenerateOptions {
  maxTokens?: number;
  /** 0: always the most probable token. */
  temperature?: number;
  topK?: number;
  topP?: number;
  minP?: number;
  seed?: number;
}
export class LanguageModel extends Held {
  /** Architecture and sizes. */
  describe(): string;
  /** The pieces of a text that continues the prompt. One generation of a model at a time. */
  generate(prompt: string, options?: GenerateOptions): AsyncGenerator<string, void>;
  /** The pieces of the reply to a conversation. */
  chat(messages: { role: string; content: string }[], options?: GenerateOptions): AsyncGenerator<string, void>;
}

export interface Compiled<Result extends Tensor | Tensor[]> {
  (...inputs: Tensor[]): Promise<Result>;
  /** Kernels, shapes and bytes of the last plan. */
  explain(options?: { source?: boolean }): string;
  dispose(): void;
}

export interface OpRow {
  name: string;
  family: string;
  doc: string;
  /** Whether it has a list of results. */
  several: boolean;
  inputs: { name: string; optional: boolean; repeated: boolean }[];
  attributes: { name: string; doc: string; type: string; required: boolean }[];
}

export interface OptimizerRow {
  title: string;
  doc: string;
  options: { name: string; standard: number | boolean; doc: string }[];
}

/** One module with its tensors. Calls that return promises run one after another. */
export class Weft {
  /** The functions of the ops. */
  readonly ops: Ops;
  /** The rows of the table that `ops` is made from. */
  readonly table: OpRow[];
  /** The optimisers and their options. */
  readonly optimizers: OptimizerRow[];
  /** Handles that were not released yet. */
  readonly liveHandles: number;

  /** Makes this the device of new tensors. */
  useDevice(device: Device): Promise<void>;
  manualSeed(seed: number): Promise<void>;
  /** A tensor of a typed array, of nested arrays, or of a number. Numbers become f32 unless `dtype` says otherwise. */
  tensor(data: Elements | Nested, options?: { shape?: number[]; dtype?: DType; device?: Device }): Promise<Tensor>;
  /** `value` everywhere. */
  full(value: number, shape: number[], options?: { dtype?: DType; device?: Device }): Tensor;
  zeros(shape: number[], options?: { dtype?: DType; device?: Device }): Tensor;
  ones(shape: number[], options?: { dtype?: DType; device?: Device }): Tensor;
  variable(initial: Tensor, options?: { name?: string; requiresGrad?: boolean }): Promise<Variable>;
  /** Computes tensors in one run. */
  evaluate(...tensors: Tensor[]): Promise<void>;
  /** d sum(seed output) / d input for each input; without `seed`, of an output with one element. */
  gradient(output: Tensor, inputs: (Tensor | Variable)[], seed?: Tensor): Tensor[];
  /** A function of tensors that is traced once for each shape, and then replayed. It may not wait for promises. */
  compile<Result extends Tensor | Tensor[]>(work: (...inputs: Tensor[]) => Result): Compiled<Result>;
  /** An optimiser of the table; options that are left out keep its own values. Errors: WeftError of the kind "Usage" for an option
   * that it does not have, and for a value out of its range. */
  optimizer<Kind extends keyof Optimizers>(kind: Kind, parameters: Variable[], options?: Optimizers[Kind]): Promise<Optimizer>;
  /** Tensors by name from the bytes of a .npy, .npz, .safetensors or .gguf file; the end of `name` says which. */
  load(bytes: Uint8Array, name: string, options?: { device?: Device }): Promise<Map<string, Tensor>>;
  /** The bytes of such a file. */
  save(tensors: Record<string, Tensor> | Map<string, Tensor>, name: string): Promise<Uint8Array>;
  /** Begins the training of a GPT on a text, on the device of new tensors. */
  trainText(text: string, options?: TextTrainingOptions): Promise<TextTrainer>;
  /** A language model from a GGUF file. `context` 0: the positions that it was trained for, or what memory holds. */
  loadModel(
    source: Uint8Array | ArrayBuffer | Blob | URL | string,
    options?: { device?: Device; context?: number },
  ): Promise<LanguageModel>;
}

export interface LoadOptions {
  /** The module: its URL, its bytes, or compiled. Without it, weft.wasm beside this file. */
  wasm?: URL | string | ArrayBuffer | ArrayBufferView | WebAssembly.Module;
  /** The device of new tensors; "cpu" if it is left out. */
  device?: Device;
  /** Environment variables, such as WEFT_DISABLE. */
  environment?: Record<string, string>;
  /** Receives lines of the log. */
  print?: (line: string) => void;
  /** Another implementation of WebGPU. */
  gpu?: unknown;
}
/** Loads the module. Errors: WeftError of the kind "Device" if the device cannot be used. */
export function load(options?: LoadOptions): Promise<Weft>;
