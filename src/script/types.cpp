// Declarations of "weft" for TypeScript: the nouns by hand, every op from the table.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "script/functions.hpp"

namespace weft::script {
namespace {

using graph::AttributeSpec;
using graph::AttributeType;
using graph::OpRow;

constexpr std::string_view kNouns = R"ts(// The module "weft". Made by `weft script types` from the table of ops.
declare module "weft" {
  export type DType = %DTYPES%;
  /** Numbers and booleans in nested arrays. */
  export type Numbers = number | boolean | bigint | readonly Numbers[];
  export type TypedArray = Int8Array | Uint8Array | Uint8ClampedArray | Int16Array | Uint16Array | Int32Array | Uint32Array
    | Float32Array | Float64Array | BigInt64Array | BigUint64Array;
  /** An input of an op. A number takes the dtype of the tensors beside it. */
  export type Operand = Tensor | Variable | Numbers;
  export type Extents = number | readonly number[];
  /** A number for all axes, or one for each. */
  export type AxisNumbers = number | readonly number[];
  export type Pairs = readonly (readonly [number, number])[];
  export type Bytes = ArrayBuffer | TypedArray;

  export class WeftError extends Error {}
  export class ShapeError extends WeftError {}
  export class DTypeError extends WeftError {}
  export class DeviceError extends WeftError {}
  export class DeviceMemoryError extends DeviceError {}
  export class FileError extends WeftError {}
  export class UsageError extends WeftError {}
  export class OperationError extends WeftError {}
  export class AccessError extends WeftError {}

  /** What tensors and variables have in common. */
  export interface Values {
    readonly shape: number[];
    readonly dtype: DType;
    readonly device: string;
    readonly rank: number;
    readonly size: number;
    /** The one element. */
    item(): any;
    /** All elements in nested arrays. */
    toArray(): any;
    /** All elements in a typed array, computed on another thread meanwhile. */
    read(): Promise<any>;
    readSync(): any;
    /** Computes the value now, and lets go of what it was made from, unless that includes a variable with requiresGrad. */
    eval(): this;
    evalAsync(): Promise<this>;
    /** The value in another dtype, or on another device. */
    to(dtypeOrDevice: DType | (string & {})): Tensor;
    /** A part: a position, [start, stop, step] or null for each axis; or a tensor of positions, or a mask. */
    get(...places: (number | null | readonly (number | null)[])[]): Tensor;
    get(positionsOrMask: Tensor): Tensor;
    /** Adds gradients to the variables that this value was made from. */
    backward(seed?: Tensor): void;
    dispose(): void;
    [Symbol.dispose](): void;
  }
  /** A handle to a value that never changes. */
  export interface Tensor extends Values, Ops {
    readonly label: string;
    readonly isDisposed: boolean;
    named(label: string): Tensor;
    toString(): string;
  }
  /** State that changes. */
  export interface Variable extends Values, Ops {
    value: Tensor;
    assign(next: Operand): void;
    readonly gradient: Tensor | null;
    clearGradient(): void;
    readonly name: string;
    requiresGrad: boolean;
  }

  export function tensor(data: Numbers | TypedArray | Tensor, options?: { dtype?: DType; shape?: Extents; device?: string }): Tensor;
  export function variable(value: Numbers | TypedArray | Tensor, options?: { name?: string; requiresGrad?: boolean }): Variable;
  /** The five calls underneath: bytes in, ops by name, ops of your own, bytes out, bytes over. */
  export function create(bytes: Bytes, shape: Extents, dtype: DType): Tensor;
  export function dispatch(op: string, inputs: readonly Operand[], attributes?: Record<string, unknown>): Tensor[];
  export function read(handle: Tensor | Variable): ArrayBuffer;
  export function write(handle: Tensor | Variable, bytes: Bytes): void;
  export interface OpFunction { (...argumentsOfOp: (Operand | Record<string, unknown> | null)[]): Tensor }
  export function registerOp(definition: { name: string; inputs: readonly string[]; forward: string;
    attributes?: Record<string, number>; gradients?: readonly string[]; doc?: string }): OpFunction;
  export interface ValueType { dtype: DType; shape: number[] }
  export function registerKernel(definition: { name: string; inputs: readonly string[]; attributes?: Record<string, number>;
    outputs?: number; shape?: (inputs: ValueType[], attributes: Record<string, number>) => ValueType[];
    cpu?: (inputs: any[], outputs: any[], facts: { inputShapes: number[][]; outputShapes: number[][] }) => void;
    wgsl?: string; workgroupSize?: number; workgroups?: string;
    gradient?: (call: { inputs: Tensor[]; outputs: Tensor[]; outputGradients: (Tensor | null)[];
      attributes: Record<string, number> }) => (Tensor | null)[]; doc?: string }): OpFunction;
  export function einsum(subscripts: string, ...operands: (Tensor | Variable)[]): Tensor;

  /** Gradients: of an output with respect to inputs, or of a function at its first argument. */
  export function grad(output: Tensor, input: Tensor | Variable, seed?: Tensor): Tensor;
  export function grad(output: Tensor, inputs: readonly (Tensor | Variable)[] | nn.Module | optim.Optimizer, seed?: Tensor): Tensor[];
  export function grad(f: (x: Tensor, ...more: any[]) => Tensor): (x: Tensor, ...more: any[]) => Tensor;
  export function valueAndGrad(f: (x: Tensor, ...more: any[]) => Tensor): (x: Tensor, ...more: any[]) => [Tensor, Tensor];
  type Several = Tensor | readonly Tensor[];
  /** [f(...inputs), gradients]: a vector (the seeds) times the Jacobian. Inputs and seeds are a tensor, or an array with one each. */
  export function vjp<R extends Several, I extends Tensor | readonly Tensor[]>(f: (...inputs: any[]) => R, inputs: I,
    seeds: Tensor | readonly (Tensor | null)[]): [R, I extends Tensor ? Tensor : Tensor[]];
  /** [f(...inputs), how the results move]: the Jacobian times a vector (the tangents). */
  export function jvp<R extends Several>(f: (...inputs: any[]) => R, inputs: Tensor | readonly Tensor[],
    tangents: Tensor | readonly (Tensor | null)[]): [R, R];
  /** d f(x) / dx for every element: [the result's shape..., x's shape...]. */
  export function jacobian(f: (x: Tensor) => Tensor, x: Tensor, options?: { forward?: boolean }): Tensor;
  export function hessian(f: (x: Tensor) => Tensor, x: Tensor): Tensor;
  /** f applied to every example of a batch, as one computation. inAxes: null for arguments that all examples share. */
  export function vmap<R extends Several>(f: (...inputs: any[]) => R,
    options?: { inAxes?: number | null | readonly (number | null)[]; outAxis?: number }): (...inputs: (Tensor | Variable)[]) => R;
  /** f(...inputs), whose inside is computed once more for gradients, so that only the inputs are kept. */
  export function checkpoint(f: (...inputs: any[]) => Tensor, inputs: Tensor | readonly Tensor[]): Tensor;
  /** forward, with `backward` in place of its gradient: it gives a gradient or null for each input. */
  export function customGradient<R extends Several>(forward: (...inputs: any[]) => R,
    backward: (call: { inputs: Tensor[]; results: Tensor[]; gradients: (Tensor | null)[] }) => Tensor | readonly (Tensor | null)[] | null):
    (...inputs: (Tensor | Variable)[]) => R;
  /** A registered hook; it stays until remove(). */
  export interface HookHandle { remove(): void }
  type GradientHook = (gradient: Tensor) => Tensor | null | void;
  /** Calls the hook with each gradient that backward() adds to variable.gradient; what it returns is added in its place, unless that is
   *  null or undefined. */
  export function registerHook(variable: Variable, hook: GradientHook): HookHandle;
  /** The same value; gradients on their way to x pass the hook. */
  export function withGradientHook(x: Tensor | Variable, hook: GradientHook): Tensor;
  export function noGrad<T>(f: () => T): T;
  export function autocast<T>(dtype: "f32" | "f16" | "bf16", f: () => T): T;
  export type Results = Tensor | Variable | readonly Tensor[] | { [name: string]: Tensor } | void;
  export interface Compiled<A extends any[], R> {
    (...given: { [K in keyof A]: A[K] | number }): R;
    explain(source?: boolean): string;
    readonly kernelCount: number;
    readonly traceCount: number;
  }
  export function compile<A extends Tensor[], R extends Results>(f: (...given: A) => R): Compiled<A, R>;
  export function explain(value: Tensor, source?: boolean): string;
  export function manualSeed(seed: number): void;
  export function defaultDevice(device?: string): string;
  export function handleCount(): number;
  export function collectGarbage(): void;

  export interface Element { readonly type: any; readonly props: Readonly<Record<string, any>>; readonly children: readonly any[] }
  export function h(type: any, props: Record<string, any> | null, ...children: any[]): Element;
  export const Fragment: unique symbol;

  export namespace nn {
    interface Module { (...given: any[]): any }
    class Module {
      constructor();
      forward(...given: any[]): any;
      add<M extends Module>(name: string, module: M): M;
      parameter(name: string, shape: Extents, options?: { init?: "zeros" | "ones" | "constant" | "normal" | "uniform" | "xavier";
        deviation?: number; low?: number; high?: number; value?: number }): Variable;
      parameters(): Variable[];
      namedParameters(): Record<string, Variable>;
      readonly parameterCount: number;
      readonly isTraining: boolean;
      train(on?: boolean): this;
      eval(): this;
      zeroGrad(): void;
      initialize(seed: number): void;
      summary(): string;
      save(path: string): void;
      load(path: string): void;
      /** Hooks run at calls of the module, in the order of registration; what they return takes the place of the value, unless that
       *  is null or undefined. While a function is compiled they run once. */
      registerForwardPreHook(hook: (module: this, input: any) => any): HookHandle;
      registerForwardHook(hook: (module: this, input: any, output: any) => any): HookHandle;
      registerOutputGradientHook(hook: (module: this, gradient: Tensor) => Tensor | null | void): HookHandle;
      registerInputGradientHook(hook: (module: this, gradient: Tensor) => Tensor | null | void): HookHandle;
    }
    interface Layer extends Module { (x: Tensor): Tensor }
    interface States { output: Tensor; h: Tensor; c?: Tensor }
    interface Recurrent extends Module { (x: Tensor): States }
    interface ConvOptions { stride?: Extents; padding?: Extents; dilation?: Extents; groups?: number; bias?: boolean }
    interface ConvTransposeOptions extends ConvOptions { outputPadding?: Extents }
    interface RecurrentOptions { layers?: number; bias?: boolean; batchFirst?: boolean; bidirectional?: boolean; dropout?: number }
    interface PoolOptions { stride?: Extents; padding?: Extents }
    type Reduction = "mean" | "sum" | "none";
    function linear(inputs: number, outputs: number, options?: { bias?: boolean }): Layer;
    function embedding(rows: number, width: number): Layer;
    function layerNorm(width: number, options?: { bias?: boolean; eps?: number }): Layer;
    function rmsNorm(width: number, options?: { eps?: number }): Layer;
    function dropout(p: number): Layer;
    function channelDropout(p: number): Layer;
    function conv1d(inputs: number, outputs: number, kernel: Extents, options?: ConvOptions): Layer;
    function conv2d(inputs: number, outputs: number, kernel: Extents, options?: ConvOptions): Layer;
    function conv3d(inputs: number, outputs: number, kernel: Extents, options?: ConvOptions): Layer;
    function convTranspose1d(inputs: number, outputs: number, kernel: Extents, options?: ConvTransposeOptions): Layer;
    function convTranspose2d(inputs: number, outputs: number, kernel: Extents, options?: ConvTransposeOptions): Layer;
    function convTranspose3d(inputs: number, outputs: number, kernel: Extents, options?: ConvTransposeOptions): Layer;
    function maxPool(kernel: Extents, options?: PoolOptions): Layer;
    function avgPool(kernel: Extents, options?: PoolOptions): Layer;
    function adaptiveAvgPool(size: Extents): Layer;
    function adaptiveMaxPool(size: Extents): Layer;
    function batchNorm(channels: number, options?: { eps?: number; momentum?: number; affine?: boolean }): Layer;
    function groupNorm(groups: number, channels: number, options?: { affine?: boolean; eps?: number }): Layer;
    function instanceNorm(channels: number, options?: { affine?: boolean; eps?: number }): Layer;
    function upsample(scale: number, options?: { mode?: "nearest" | "linear" | "cubic"; alignCorners?: boolean }): Layer;
    /** Soft assignment to learnt centres, or with `features` the centres weighted by it. */
    function kMeans(inputs: number, centres: number, options?: { temperature?: number; features?: boolean }): Layer;
    /** A mixture of experts. Add its balance loss, times a small factor, to the loss. */
    interface Mixture extends Module { (x: Tensor): { output: Tensor; balanceLoss: Tensor } }
    function mixture(width: number, hidden: number, experts: number, options?: { topK?: number }): Mixture;
    function flatten(): Layer;
    function prelu(channels?: number): Layer;
    function rnn(inputs: number, width: number, options?: RecurrentOptions): Recurrent;
    function gru(inputs: number, width: number, options?: RecurrentOptions): Recurrent;
    function lstm(inputs: number, width: number, options?: RecurrentOptions): Recurrent;
    function gpt(config?: { vocabulary?: number; context?: number; layers?: number; heads?: number; width?: number;
      dropout?: number; tied?: boolean }): Layer;
    /** Modules and functions one after another. */
    function sequential(...steps: (Module | ((x: Tensor) => Tensor))[]): Layer;
    function crossEntropy(logits: Tensor, targets: Tensor, options?: { weight?: Tensor; labelSmoothing?: number;
      ignoreIndex?: number; reduction?: Reduction }): Tensor;
    function mse(prediction: Tensor, target: Operand, options?: { reduction?: Reduction }): Tensor;
    function l1(prediction: Tensor, target: Operand, options?: { reduction?: Reduction }): Tensor;
    function huber(prediction: Tensor, target: Operand, options?: { delta?: number; reduction?: Reduction }): Tensor;
    function binaryCrossEntropy(logits: Tensor, targets: Operand, options?: { reduction?: Reduction }): Tensor;
    function nll(logProbabilities: Tensor, targets: Operand, options?: { reduction?: Reduction }): Tensor;
  }

  export namespace optim {
    interface Optimizer {
      /** One update; returns the norm of the gradients. */
      step(gradients: readonly Tensor[], learningRate?: number | Tensor): Tensor;
      parameters(): Variable[];
      learningRate: number;
      readonly stepCount: number;
      /** Forgets the moments and the number of steps; the parameters stay. */
      reset(): void;
    }
    type Parameters = nn.Module | readonly Variable[];
    function sgd(parameters: Parameters, options?: { learningRate?: number; momentum?: number; dampening?: number;
      nesterov?: boolean; weightDecay?: number; maximize?: boolean; clipNorm?: number }): Optimizer;
    interface AdamOptions { learningRate?: number; beta1?: number; beta2?: number; epsilon?: number; weightDecay?: number; clipNorm?: number }
    function adam(parameters: Parameters, options?: AdamOptions): Optimizer;
    function adamW(parameters: Parameters, options?: AdamOptions): Optimizer;
    function schedule(options: { kind?: "constant" | "linear" | "cosine" | "staircase"; rate?: number; finalRate?: number;
      steps?: number; warmUp?: number; factor?: number; every?: number }): (step: number) => number;
  }

  /** Volumetric networks: layers in the cells of a grid, described as data. docs/volumetric.md has the members. */
  export namespace grid {
    /** {"layers": [...], "depth", "rows", "columns", "layers_per_cell"}, as in files. */
    type Description = Record<string, unknown>;
    interface Network extends nn.Layer {}
    function network(description: Description): Network;
    /** The description that a builder makes, "mlp", "cnn", "transformer" or "random". */
    function build(kind: "mlp" | "cnn" | "transformer" | "random", options?: Record<string, unknown>): Description;
    function mlp(widths: readonly number[], activation?: string): Network;
    function describe(network: Network): Description;
    /** From now on a layer, or all, see their parameters in this type: one of 21, such as "int8". */
    function morph(network: Network, dtype: string, place?: readonly number[]): void;
    function memory(network: Network): { parameters: number; masterBytes: number; packedBytes: number };
    function clone(network: Network): Network;
    function pass(network: Network, x: Tensor): { output: Tensor;
      layers: { path: string; input: Tensor; before: Tensor; after: Tensor }[] };
    /** Topology and parameters in one file. */
    function save(network: Network, path: string, options?: { keepMaster?: boolean }): void;
    function load(path: string): Network;
    interface Mesh { setInput(x: Tensor): void; ticks(count?: number): void; output(): Tensor | null }
    function systolic(network: Network, options?: { keepsGradients?: boolean }): Mesh;
    function stream(network: Network): { next(x: Tensor): Tensor };
    function targetPropagation(network: Network, options?: { mode?: "chain_rule" | "gap"; gradientScale?: number;
      learningRate?: number; budgetMin?: number }): { step(x: Tensor | Mesh, target: Tensor):
      { path: string; target: Tensor | null; budget: Tensor | null; gap: Tensor | null }[] };
    function dna(network: Network): { at: string; type: string; dtype: string; direction: Tensor }[];
    function compare(a: Network, b: Network, shiftAbove?: number): { overall: number; layers: { at: string; similarity: number }[];
      shifts: { from: string; to: string; similarity: number }[] };
    interface SpliceOptions { mode?: "blend" | "point" | "uniform"; splitRatio?: number; blendAlpha?: number; fitnessA?: number;
      fitnessB?: number; seed?: number }
    interface MutationOptions { weights?: number; amount?: number; activation?: number; node?: number; toggle?: number;
      addLink?: number; dropLink?: number; width?: number; seed?: number }
    function splice(a: Network, b: Network, options?: SpliceOptions): Network;
    function mutate(network: Network, options?: MutationOptions): Network;
    interface Population {
      evolve(fitness: (network: Network) => number): { generation: number; best: number | null; mean: number | null; worst: number | null };
      best(): Network;
    }
    function population(ancestor: Network, options?: { size?: number; seed?: number; mutation?: MutationOptions;
      splice?: SpliceOptions }): Population;
  }
  /** Texts with embeddings: exact search by cosine, and contexts for prompts. */
  export namespace memory {
    type Embedding = Tensor | readonly number[] | TypedArray;
    interface Match { id: string; namespace: string; text: string; metadata: Record<string, any>; similarity: number }
    interface SearchOptions { topK?: number; namespace?: string; where?: Record<string, unknown>; similarityMin?: number }
    interface Store {
      /** Returns the id. */
      add(text: string, embedding: Embedding, options?: { id?: string; namespace?: string; metadata?: Record<string, unknown> }): string;
      remove(id: string): boolean;
      readonly size: number;
      search(embedding: Embedding, options?: SearchOptions): Match[];
      /** The best texts that fit into `tokens`, counted by `count`, or else a quarter of the bytes. */
      recall(embedding: Embedding, options?: SearchOptions & { tokens?: number; count?: (text: string) => number }):
        { text: string; tokens: number; matches: Match[] };
      save(path: string): void;
    }
    function store(width: number): Store;
    function load(path: string): Store;
  }
  /** Component trees: what changed from one version to the next, and models that keep what did not. Types may be functions of props. */
  export namespace tree {
    interface Edit { kind: "replace" | "update" | "remove" | "move" | "insert"; path: string; from?: number; to?: number;
      element?: Element; props?: Record<string, any> }
    /** The tree without functions as types. */
    function expand(element: Element): Element;
    function difference(older: Element, newer: Element): Edit[];
    function apply(tree: Element, edits: readonly Edit[]): Element;
    interface Model extends nn.Layer {}
    /** A model of Sequential, Residual, Parallel, Linear, ... docs/trees.md has the elements. */
    function model(element: Element): Model;
    /** Makes the model one of another tree. Elements that did not change keep their parameters. */
    function render(model: Model, element: Element): Edit[];
  }
  /** Metatensor and safetensors files in granted folders. docs/metatensor.md describes schemas and layouts. */
  export namespace metatensor {
    interface File {
      readonly schema: any;
      readonly metadata: Record<string, string>;
      readonly paths: string[];
      /** Records, or entries of a blob. */
      count(path: string): number;
      tensor(path: string): Tensor;
      /** A tensor field of records as one tensor [count, ...]. */
      column(path: string, field: string, first?: number, count?: number): Tensor;
      record(path: string, index: number): any;
      bytes(path: string): Uint8Array;
    }
    function open(path: string): File;
    /** Every broken rule; empty for a good file. */
    function validate(path: string): { code: string; byte: number; name: string; message: string }[];
    function difference(older: unknown, newer: unknown): { kind: "added" | "removed" | "changed"; path: string; before: any; after: any }[];
    /** The schema of a component tree: Struct, Field, Tensor, ArrayOf, Blob. */
    function schemaOf(element: Element): any;
    function save(path: string, content: { tensors?: Record<string, Tensor>;
      records?: Record<string, { layout: unknown; values: readonly unknown[]; packed?: boolean }>;
      blobs?: Record<string, readonly (string | Bytes)[]>; optional?: readonly string[]; metadata?: Record<string, string> }): void;
  }

  /** Operations that were granted (--allow-operations, --allow-register). */
  export namespace operations {
    function list(): { id: string; kind: string; description: string }[];
    function describe(id: string): any;
    interface Specification { namespace: string; name: string; version?: string;
      kind?: "query" | "mutation" | "subscription"; title?: string; description?: string; input?: unknown; output?: unknown;
      scopes?: readonly string[]; errors?: Record<string, string> }
    /** The specifications of a JSON Schema document, for `register`: its list of operations, or its definitions with an input. */
    function fromSchema(document: unknown, options?: { namespace?: string }): Specification[];
    function call(id: string, input?: unknown, options?: { timeout?: number }): Promise<any>;
    interface Subscription extends AsyncIterableIterator<any> { return(): Promise<IteratorResult<any>> }
    /** The answers, one after the other; leaving the loop ends the call. */
    function subscribe(id: string, input?: unknown, options?: { timeout?: number }): Subscription;
    /** `errors`: codes and what they mean; an error with such a `code` has its `details`. A subscription returns an iterator. */
    function register(specification: Specification,
      f: (input: any, call: { identity: string | null; requestId: string }) => unknown): string;
  }
  /** Trees of granted operations: `<workflow.Sequential>` with children, or {type, props, children}. docs/workflows.md has the props. */
  export namespace workflow {
    const Operation: "Operation", Sequential: "Sequential", Parallel: "Parallel", Conditional: "Conditional", Map: "Map";
    interface Problem { code: string; path: string; message: string }
    type Template = Element | { name?: string; description?: string; inputSchema?: unknown; outputSchema?: unknown;
      onFailure?: "abort-dependents" | "continue-running"; tree: Element };
    /** What is wrong; nothing runs. */
    function check(template: Template): Problem[];
    /** The result, once `check` finds nothing. `timeout` is in seconds. */
    function run(template: Template, input?: unknown, options?: { timeout?: number }): Promise<any>;
  }
  /** Files in granted folders (--allow-read, --allow-write). */
  export namespace files {
    function readText(path: string): string;
    function read(path: string): Uint8Array;
    function writeText(path: string, text: string): void;
    function write(path: string, bytes: Bytes): void;
    function list(path: string): string[];
    function exists(path: string): boolean;
    function remove(path: string): void;
    /** .npy: a tensor; .npz, .safetensors, .gguf: tensors by name. */
    function load(path: string): any;
    function save(path: string, tensors: Tensor | Record<string, Tensor>): void;
  }
  export interface Reply { status: number; ok: boolean; headers: Record<string, string>; text: string }
  /** HTTP to granted hosts (--allow-net). */
  export function fetch(url: string, options?: { method?: string; headers?: Record<string, string>; body?: string }): Promise<Reply>;

)ts";

constexpr std::string_view kGlobals = R"ts(
interface SymbolConstructor { readonly dispose: unique symbol }
declare var console: { log(...values: unknown[]): void; info(...values: unknown[]): void; debug(...values: unknown[]): void;
  error(...values: unknown[]): void; warn(...values: unknown[]): void };
declare function setTimeout(f: (...given: any[]) => void, delay?: number, ...given: any[]): number;
declare function setInterval(f: (...given: any[]) => void, delay?: number, ...given: any[]): number;
declare function clearTimeout(timer?: number): void;
declare function clearInterval(timer?: number): void;
declare namespace JSX {
  type Element = import("weft").Element;
  type ElementType = any;
  interface IntrinsicElements { [name: string]: any }
  interface ElementChildrenAttribute { children: {} }
}
)ts";

const std::set<std::string_view> kReserved = {"var",  "function", "class", "default", "delete",
                                              "with", "in",       "new",   "do",      "if"};
// Exports and methods of the nouns above, which ops do not replace.
const std::set<std::string_view> kExports = {
    "tensor",  "variable", "create",   "dispatch", "read",       "write",      "einsum",     "grad",  "compile",
    "explain", "fetch",    "h",        "nn",       "optim",      "operations", "workflow",   "files", "vjp",
    "jvp",     "vmap",     "jacobian", "hessian",  "checkpoint", "grid",       "metatensor", "tree",  "memory"};
const std::set<std::string_view> kMethods = {
    "shape",    "dtype",     "device", "rank",     "size",          "item",    "toArray",     "read",       "readSync",
    "eval",     "evalAsync", "to",     "get",      "backward",      "dispose", "label",       "isDisposed", "named",
    "toString", "value",     "assign", "gradient", "clearGradient", "name",    "requiresGrad"};

std::string type_of(const AttributeSpec& spec) {
  std::string text;
  switch (spec.type) {
    case AttributeType::integer:
    case AttributeType::number: text = "number"; break;
    case AttributeType::boolean: text = "boolean"; break;
    case AttributeType::integers: text = "Extents"; break;
    case AttributeType::numbers: text = "AxisNumbers"; break;
    case AttributeType::pairs: text = "Pairs"; break;
    case AttributeType::dtype: text = "DType"; break;
    case AttributeType::choice: text = fmt::format("\"{}\"", fmt::join(spec.choices, "\" | \"")); break;
  }
  return spec.default_value ? text + " | null" : text;
}

// Names that are no identifiers of TypeScript get a "_".
std::string identifier(const std::string& name) {
  const std::string made = camel(name);
  return kReserved.contains(made) ? made + "_" : made;
}

// The parameter lists of a row, from input `first` on: attributes by name, and one after another.
std::vector<std::string> parameter_lists(const OpRow& row, std::size_t first) {
  std::vector<std::string> required, all;
  bool any_optional = false;
  for (std::size_t i = first; i < row.inputs.size(); ++i) {
    const graph::InputSpec& input = row.inputs[i];
    const std::string type = input.repeated ? "readonly Operand[]" : "Operand";
    any_optional = any_optional || input.optional;
    if (!input.optional) required.push_back(fmt::format("{}: {}", identifier(input.name), type));
    all.push_back(any_optional ? fmt::format("{}?: {} | null", identifier(input.name), type)
                               : fmt::format("{}: {}", identifier(input.name), type));
  }
  if (row.attributes.empty()) return {fmt::format("{}", fmt::join(all, ", "))};
  std::vector<std::string> members;
  bool needs_attributes = false, optional = any_optional;
  std::vector<std::string> positional = all;
  for (const AttributeSpec& spec : row.attributes) {
    needs_attributes = needs_attributes || !spec.default_value;
    std::vector<std::string> names{camel(spec.name)};
    if (names[0] != spec.name) names.push_back(spec.name);
    for (const std::string& alias : spec.aliases) names.push_back(camel(alias));
    std::sort(names.begin() + 1, names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (const std::string& name : names)
      members.push_back(
          fmt::format("{}{}: {}", name, spec.default_value || names.size() > 1 ? "?" : "", type_of(spec)));
    optional = optional || spec.default_value;
    positional.push_back(fmt::format("{}{}: {}", identifier(spec.name), optional ? "?" : "", type_of(spec)));
  }
  const std::string attributes = fmt::format("{{ {} }}", fmt::join(members, "; "));
  std::vector<std::string> lists;
  auto by_name = [&](std::vector<std::string> inputs, bool can_be_left_out) {
    inputs.push_back(fmt::format("attributes{}: {}", can_be_left_out ? "?" : "", attributes));
    lists.push_back(fmt::format("{}", fmt::join(inputs, ", ")));
  };
  by_name(required, !needs_attributes);
  if (any_optional) by_name(all, true);
  lists.push_back(fmt::format("{}", fmt::join(positional, ", ")));
  return lists;
}

std::string doc_of(const OpRow& row) {
  std::string text = row.doc;
  for (std::size_t at = 0; (at = text.find("*/", at)) != std::string::npos;) text.replace(at, 2, "* /");
  return text;
}

}  // namespace

std::string type_declarations() {
  std::string text(kNouns);
  std::vector<std::string> types;
  for (const DType type : kAllDTypes) types.push_back(fmt::format("\"{}\"", weft::name_of(type)));
  text.replace(text.find("%DTYPES%"), 8, fmt::format("{}", fmt::join(types, " | ")));
  std::string methods;
  std::set<std::string> functions_made, methods_made;
  for (const OpRow* row : graph::op_rows()) {
    if (is_of_script(*row)) continue;
    const char* const result = row->several_outputs ? "Tensor[]" : "Tensor";
    for (const std::string& name : script_names(*row)) {
      if (!kExports.contains(name) && functions_made.insert(name).second) {
        const bool is_reserved = kReserved.contains(name);
        const std::string declared = is_reserved ? name + "_" : name;
        text += fmt::format("  /** {} */\n", doc_of(*row));
        for (const std::string& list : parameter_lists(*row, 0))
          text += fmt::format("  {}function {}({}): {};\n", is_reserved ? "" : "export ", declared, list, result);
        if (is_reserved) text += fmt::format("  export {{ {} as {} }};\n", declared, name);
      }
      if (!is_method(*row) || kMethods.contains(name) || !methods_made.insert(name).second) continue;
      methods += fmt::format("    /** {} */\n", doc_of(*row));
      for (const std::string& list : parameter_lists(*row, 1)) {
        methods += fmt::format("    {}({}): {};\n", name, list, result);
        if (has_in_place(*row)) methods += fmt::format("    {}_({}): this;\n", name, list);
      }
    }
  }
  // Losses that nn takes from the table.
  text += "\n  export namespace nn {\n";
  for (const OpRow* row : graph::op_rows())
    if (row->family == "loss" && !is_of_script(*row))
      if (const std::string name = name_of_loss(*row); kNouns.find("function " + name + "(") == kNouns.npos)
        text += fmt::format("    const {}: typeof import(\"weft\").{};\n", name, camel(row->name));
  text += "  }\n";
  text += "\n  /** Every op whose first input is this value. */\n  export interface Ops {\n" + methods + "  }\n}\n";
  return text + std::string(kGlobals);
}

}  // namespace weft::script
