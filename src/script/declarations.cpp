#include "script/declarations.hpp"

namespace weft::script {

const std::string_view kNounDeclarations = R"ts(// The module "weft". Made by `weft script types` from the table of ops.
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
    /** Nested arrays, for JSON.stringify. */
    toJSON(): any;
    /** The number of a tensor of one element, for operators. */
    [Symbol.toPrimitive](hint: string): any;
    /** Parts along the first axis. */
    [Symbol.iterator](): IterableIterator<Tensor>;
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
    interface Attention extends Module { (query: Tensor, key?: Tensor, value?: Tensor, mask?: Tensor): Tensor }
    /** Attention of several heads over [N, length, width]; the key is the query and the value the key unless they are given. A bool mask says
     *  what is seen. */
    function multiheadAttention(width: number, heads: number, options?: { dropout?: number; bias?: boolean }): Attention;
    function transformerEncoderLayer(width: number, heads: number, options?: { feedForward?: number; dropout?: number;
      normFirst?: boolean; gelu?: boolean; eps?: number; bias?: boolean }): Module & ((x: Tensor, mask?: Tensor) => Tensor);
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
    interface Common { learningRate?: number; maximize?: boolean; clipNorm?: number }
    interface Decaying extends Common { weightDecay?: number }
    interface WithMoments extends Decaying { beta1?: number; beta2?: number; epsilon?: number }
    function sgd(parameters: Parameters, options?: Decaying & { momentum?: number; dampening?: number; nesterov?: boolean }): Optimizer;
    function adam(parameters: Parameters, options?: WithMoments & { amsgrad?: boolean }): Optimizer;
    function adamW(parameters: Parameters, options?: WithMoments & { amsgrad?: boolean }): Optimizer;
    function rmsprop(parameters: Parameters, options?: Decaying & { alpha?: number; epsilon?: number; momentum?: number; centered?: boolean }): Optimizer;
    function adagrad(parameters: Parameters, options?: Decaying & { rateDecay?: number; initialAccumulator?: number; epsilon?: number }): Optimizer;
    function adadelta(parameters: Parameters, options?: Decaying & { rho?: number; epsilon?: number }): Optimizer;
    function adamax(parameters: Parameters, options?: WithMoments): Optimizer;
    function nadam(parameters: Parameters, options?: WithMoments & { momentumDecay?: number; decoupled?: boolean }): Optimizer;
    function radam(parameters: Parameters, options?: WithMoments & { decoupled?: boolean }): Optimizer;
    function asgd(parameters: Parameters, options?: Decaying & { lambd?: number; alpha?: number; averagingStart?: number }): Optimizer;
    function rprop(parameters: Parameters, options?: Common & { shrink?: number; grow?: number; leastStep?: number; largestStep?: number }): Optimizer;
    function lion(parameters: Parameters, options?: Decaying & { beta1?: number; beta2?: number }): Optimizer;
    function adafactor(parameters: Parameters, options?: Decaying & { beta2Decay?: number; epsilon1?: number; epsilon2?: number;
      clipThreshold?: number }): Optimizer;
    function lamb(parameters: Parameters, options?: WithMoments): Optimizer;
    function muon(parameters: Parameters, options?: WithMoments & { momentum?: number; nesterov?: boolean; iterations?: number;
      matchAdamw?: boolean; adamEpsilon?: number }): Optimizer;
    function schedule(options: { kind?: "constant" | "linear" | "cosine" | "staircase" | "exponential" | "polynomial" | "restarts" |
      "oneCycle" | "cyclic"; rate?: number; finalRate?: number; steps?: number; warmUp?: number; factor?: number; every?: number;
      power?: number; firstRate?: number; rise?: number; straight?: boolean }): (step: number) => number;
  }
)ts";

}  // namespace weft::script
