// Nouns that stand for themselves: networks as data, memories, files, images, sounds, operations.
#include "script/declarations.hpp"

namespace weft::script {

const std::string_view kServiceDeclarations = R"ts(
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

  /** Images: u8 [height, width, 3]. Files of PNG, JPEG, WebP, GIF and BMP are read, in granted folders or from bytes. */
  export namespace image {
    type Filter = "nearest" | "bilinear" | "bicubic" | "lanczos";
    function read(path: string): Tensor;
    function decode(file: Bytes): Tensor;
    function encode(image: Tensor, options?: { format?: "png" | "jpeg"; quality?: number }): Uint8Array;
    /** .png, .jpg or .jpeg; `quality` is of JPEG, 1 to 100. */
    function write(path: string, image: Tensor, options?: { quality?: number }): void;
    function resize(image: Tensor, height: number, width: number, options?: { filter?: Filter }): Tensor;
    function centerCrop(image: Tensor, height: number, width: number): Tensor;
  }
  /** Sounds. Files of WAV, FLAC, Ogg and MP3 are read, in granted folders or from bytes; WAV is written. */
  export namespace audio {
    /** Samples f32 [channels, frames] with full scale [-1, 1], and frames per second. */
    interface Sound { samples: Tensor; rate: number }
    interface WavOptions { format?: "pcm8" | "pcm16" | "pcm24" | "pcm32" | "f32" | "f64" }
    interface StftOptions { size?: number; hop?: number; windowSize?: number; centred?: boolean;
      window?: "hann" | "hamming" | "blackman" | "rectangular" }
    interface Spectrum { real: Tensor; imaginary: Tensor }
    function read(path: string): Sound;
    function decode(file: Bytes): Sound;
    function encode(sound: Sound, options?: WavOptions): Uint8Array;
    function write(path: string, sound: Sound, options?: WavOptions): void;
    /** One channel: the mean of all. */
    function mono(sound: Sound): Sound;
    function resample(sound: Sound, rate: number): Sound;
    /** [..., samples] -> [..., frames, size / 2 + 1]. */
    function stft(x: Tensor, options?: StftOptions): Spectrum;
    function istft(spectrum: Spectrum, options?: StftOptions & { length?: number }): Tensor;
    function melFilters(options?: { mels?: number; size?: number; rate?: number; low?: number; high?: number;
      scale?: "slaney" | "htk"; normalized?: boolean }): Tensor;
    /** The features that Whisper reads, of samples at 16 kHz. */
    function logMelSpectrogram(x: Tensor, mels?: number): Tensor;
  }
  /** Vision models from granted folders. */
  export namespace vision {
    /** CLIP and SigLIP: rows of images and of texts in one space. */
    interface Encoder {
      embedImages(images: readonly Tensor[], options?: { normalize?: boolean }): Tensor;
      embedTexts(texts: readonly string[], options?: { normalize?: boolean }): Tensor;
      scores(images: Tensor, texts: Tensor): Tensor;
      /** What share of each image each text has. */
      probabilities(images: Tensor, texts: Tensor): Tensor;
    }
    /** ViT. */
    interface Classifier {
      logits(images: readonly Tensor[]): Tensor;
      classify(image: Tensor, count?: number): { index: number; name: string; probability: number }[];
    }
    function encoder(folder: string): Encoder;
    function classifier(folder: string): Classifier;
  }
  /** Text encoders from granted folders: BERT and others. */
  export namespace encoder {
    interface Label { index: number; name: string; probability: number }
    interface Model {
      embed(texts: readonly string[], options?: { prompt?: string; normalize?: boolean; width?: number; cut?: boolean }): Tensor;
      /** Documents by how well they answer the query, the best first. */
      rerank(query: string, documents: readonly string[], options?: { count?: number }): { index: number; score: number; probability: number }[];
      logits(texts: readonly string[], pairs?: readonly string[]): Tensor;
      classify(text: string, options?: { count?: number; pair?: string; cut?: boolean }): Label[];
      labelTokens(text: string): { token: number; text: string; label: Label }[];
      entities(text: string): { name: string; text: string; probability: number; firstToken: number; tokens: number }[];
      /** For each mask in the text the most probable tokens. */
      fillMasks(text: string, options?: { count?: number }): { token: number; text: string; probability: number }[][];
      /** The parts of a text that most probably answer a question, with their places in bytes; an empty one says that there is none. */
      answer(question: string, text: string, options?: { count?: number; longest?: number; window?: number; stride?: number; mayBeNone?: boolean }): { text: string; begin: number; end: number; probability: number }[];
    }
    function load(folder: string, options?: { precision?: "f32" | "f16" | "bf16" }): Model;
  }
  /** Speech models from granted folders. */
  export namespace speech {
    interface Word { begin: number; end: number; text: string; probability: number }
    /** `words` is empty unless they were asked for. */
    interface Segment { begin: number; end: number; text: string; tokens: number[]; temperature: number;
      meanLogProbability: number; compressionRatio: number; noSpeechProbability: number; words: Word[] }
    interface Transcript { text: string; language: string; languageProbability: number; seconds: number; segments: Segment[] }
    interface Transcriber {
      transcribe(sound: audio.Sound, options?: { language?: string; task?: "transcribe" | "translate"; timestamps?: boolean;
        temperatures?: readonly number[]; compressionRatioMax?: number; logProbabilityMin?: number; noSpeechMax?: number;
        words?: boolean; speech?: readonly (readonly [number, number])[]; beamSize?: number; bestOf?: number; patience?: number; lengthPenalty?: number;
        conditionOnPrevious?: boolean; prompt?: string; maxTokens?: number; seed?: number;
        onSegment?: (segment: Segment) => void }): Transcript;
      detectLanguage(sound: audio.Sound): { language: string; probability: number }[];
      readonly languages: string[];
    }
    interface Voice {
      speak(text: string, options?: { rate?: number; noise?: number; durationNoise?: number; speaker?: number | string; seed?: number;
        pause?: number; isPhonemes?: boolean }): audio.Sound;
      readonly speakerNames: string[];
    }
    /** Finds the speech in a sound: pairs of seconds, as the option `speech` takes them. */
    interface Detector {
      spans(sound: audio.Sound, options?: { threshold?: number; speechMin?: number; silenceMin?: number;
        margin?: number }): [number, number][];
    }
    /** A folder of Whisper or Moonshine, or of wav2vec 2.0 or HuBERT with a head for CTC. */
    function transcriber(folder: string): Transcriber;
    /** A folder of VITS, or a voice of Piper (.onnx). */
    function voice(path: string): Voice;
    /** Silero's detector of speech (.onnx). */
    function detector(path: string): Detector;
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
  export interface Reply { status: number; ok: boolean; headers: Record<string, string>; text: string; bytes: Uint8Array }
  /** HTTP to granted hosts (--allow-net). The global fetch gives a Response of the web instead. */
  export function fetch(url: string, options?: { method?: string; headers?: Record<string, string>; body?: string }): Promise<Reply>;

)ts";

const std::string_view kGlobalDeclarations = R"ts(
interface SymbolConstructor { readonly dispose: unique symbol }
declare var console: { log(...values: unknown[]): void; info(...values: unknown[]): void; debug(...values: unknown[]): void;
  error(...values: unknown[]): void; warn(...values: unknown[]): void; trace(...values: unknown[]): void; dir(value: unknown): void;
  assert(holds: unknown, ...values: unknown[]): void; table(rows: unknown): void; group(...values: unknown[]): void; groupEnd(): void;
  time(label?: string): void; timeLog(label?: string, ...values: unknown[]): void; timeEnd(label?: string): void;
  count(label?: string): void; countReset(label?: string): void };
declare function structuredClone<T>(value: T): T;
declare function queueMicrotask(f: () => void): void;
declare function btoa(text: string): string;
declare function atob(text: string): string;
declare var performance: { now(): number };
declare var crypto: { getRandomValues<T extends ArrayBufferView>(array: T): T; randomUUID(): string };
declare class DOMException extends Error { constructor(message?: string, name?: string) }
declare class Event { constructor(type: string, options?: { cancelable?: boolean }); readonly type: string; readonly target: unknown;
  readonly cancelable: boolean; readonly defaultPrevented: boolean; preventDefault(): void }
type Listener = ((event: Event) => void) | { handleEvent(event: Event): void };
declare class EventTarget { addEventListener(type: string, listener: Listener, options?: { once?: boolean; signal?: AbortSignal }): void;
  removeEventListener(type: string, listener: Listener): void; dispatchEvent(event: Event): boolean }
declare class AbortSignal extends EventTarget { private constructor(); readonly aborted: boolean; readonly reason: any;
  onabort: ((event: Event) => void) | null; throwIfAborted(): void; static abort(reason?: any): AbortSignal;
  static timeout(milliseconds: number): AbortSignal; static any(signals: Iterable<AbortSignal>): AbortSignal }
declare class AbortController { readonly signal: AbortSignal; abort(reason?: any): void }
declare class TextEncoder { readonly encoding: string; encode(text?: string): Uint8Array;
  encodeInto(text: string, target: Uint8Array): { read: number; written: number } }
declare class TextDecoder { constructor(label?: "utf-8" | "utf8" | "utf-16le", options?: { fatal?: boolean; ignoreBOM?: boolean });
  readonly encoding: string; decode(input?: ArrayBuffer | ArrayBufferView, options?: { stream?: boolean }): string }
declare class URLSearchParams { constructor(given?: string | Iterable<[string, string]> | Record<string, string>); readonly size: number;
  append(name: string, value: string): void; delete(name: string, value?: string): void; get(name: string): string | null;
  getAll(name: string): string[]; has(name: string, value?: string): boolean; set(name: string, value: string): void; sort(): void;
  forEach(call: (value: string, name: string) => void): void; entries(): IterableIterator<[string, string]>; keys(): IterableIterator<string>;
  values(): IterableIterator<string>; [Symbol.iterator](): IterableIterator<[string, string]>; toString(): string }
declare class URL { constructor(input: string | URL, base?: string | URL); href: string; readonly origin: string; protocol: string;
  username: string; password: string; host: string; hostname: string; port: string; pathname: string; search: string; hash: string;
  readonly searchParams: URLSearchParams; toString(): string; toJSON(): string; static canParse(input: string, base?: string): boolean;
  static parse(input: string, base?: string): URL | null }
declare class Headers { constructor(given?: Iterable<[string, string]> | Record<string, string>); append(name: string, value: string): void;
  set(name: string, value: string): void; get(name: string): string | null; has(name: string): boolean; delete(name: string): void;
  forEach(call: (value: string, name: string) => void): void; entries(): IterableIterator<[string, string]>;
  keys(): IterableIterator<string>; values(): IterableIterator<string>; [Symbol.iterator](): IterableIterator<[string, string]> }
declare class Response { constructor(body?: string | ArrayBuffer | ArrayBufferView, options?: { status?: number; statusText?: string; headers?: Record<string, string> | Headers });
  readonly status: number; readonly statusText: string; readonly ok: boolean; readonly url: string; readonly headers: Headers; readonly bodyUsed: boolean;
  text(): Promise<string>; json(): Promise<any>; bytes(): Promise<Uint8Array>; arrayBuffer(): Promise<ArrayBuffer> }
declare function fetch(url: string | URL, options?: { method?: string; headers?: Record<string, string> | Headers; body?: string | URLSearchParams;
  signal?: AbortSignal }): Promise<Response>;
interface ImportMeta { readonly url: string }
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

}  // namespace weft::script
