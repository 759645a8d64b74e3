// Hostile scripts: each ends by a limit, or by an error that names what is wrong; nothing crashes, hangs or leaks.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/temporary_folder.hpp"
#include "script/run_script.hpp"

namespace weft::script {
namespace {

using test::TemporaryFolder;

struct Attack {
  const char* name;
  const char* text;
  Outcome outcome;
  const char* message = "";           // a part of it
  std::optional<Outcome> other = {};  // which may come instead
};

const Attack kAttacks[] = {
    // ---- Time
    {"an infinite loop", "for (;;);", Outcome::time, "limit of"},
    {"a loop that catches all", "for (;;) { try { for (;;); } catch {} finally { } }", Outcome::time},
    {"a loop in a finally", "try { throw 1 } finally { for (;;); }", Outcome::time},
    {"a generator without end", "function* g() { for (;;) yield 1 } for (const x of g());", Outcome::time},
    {"a promise loop", "const f = () => Promise.resolve().then(f); await f();", Outcome::memory},
    {"microtasks without end", "const f = () => queueMicrotask(f); f();", Outcome::time},
    {"timers without end", "const f = () => setTimeout(f, 0); f();", Outcome::time},
    {"an interval", "setInterval(() => {}, 1);", Outcome::time},
    {"a timer far away", "setTimeout(() => {}, 1e9);", Outcome::time},
    {"a regular expression that backtracks", "/^(a+)+$/.test('a'.repeat(40) + 'b')", Outcome::time},
    {"a huge array-like", "Array.prototype.lastIndexOf.call({ length: 2 ** 53 - 1 }, 1)", Outcome::time},
    {"copying a huge array-like", "Array.prototype.copyWithin.call({ length: 2 ** 53 - 1 }, 0, 1)", Outcome::time},
    {"sorting a huge array-like", "Array.prototype.sort.call({ length: 2 ** 32 })", Outcome::time},
    {"joining a sparse array", "const a = []; a.length = 2 ** 32 - 1; a.indexOf(1)", Outcome::time},
    {"a replacement of all before each match", "'a'.repeat(1e6).replaceAll('a', '$`')", Outcome::time, "",
     Outcome::memory},
    {"replacing by long texts", "'a'.repeat(1e6).replaceAll('a', 'b'.repeat(1e6))", Outcome::time, "", Outcome::memory},
    {"replacing nothing", "const a = 'a'.repeat(1e6); for (;;) a.replaceAll('', '$&')", Outcome::time},
    {"searching for a long text", "'a'.repeat(2e7).indexOf('a'.repeat(1e7) + 'b')", Outcome::time},
    {"searching backwards", "'a'.repeat(2e7).lastIndexOf('b' + 'a'.repeat(1e7))", Outcome::time},
    {"whether a long text is included", "'a'.repeat(2e7).includes('a'.repeat(1e7) + 'b')", Outcome::time},
    {"splitting by a long text", "'a'.repeat(2e7).split('a'.repeat(1e7) + 'b')", Outcome::time},
    {"replacing a long text", "'a'.repeat(2e7).replace('a'.repeat(1e7) + 'b', '')", Outcome::time},
    {"comparing long texts", "const a = 'a'.repeat(1e7) + 'b', b = 'a'.repeat(1e7) + 'b'; for (;;) a === b",
     Outcome::time},
    {"ordering long texts", "const a = 'a'.repeat(1e7) + 'b', b = 'a'.repeat(1e7) + 'c'; for (;;) a < b",
     Outcome::time},
    {"products of large integers", "let a = 3n ** 300000n; for (;;) a * a", Outcome::time},
    {"quotients of large integers", "let a = 3n ** 600000n, b = 3n ** 300000n; for (;;) a / b", Outcome::time},
    {"remainders of large integers", "let a = 3n ** 600000n, b = 3n ** 300000n; for (;;) a % b", Outcome::time},
    {"powers of large integers", "for (;;) 3n ** 600000n", Outcome::time},
    {"large integers as text", "let a = 3n ** 600000n; for (;;) `${a}`", Outcome::time},
    {"large integers from text", "let a = '9'.repeat(300000); for (;;) BigInt(a)", Outcome::time},
    {"sorting by text", "const a = Array.from({ length: 3e5 }, (_, i) => i ^ 0x15555); for (;;) a.slice().sort()",
     Outcome::time},
    {"filling a long array", "const a = new Uint8Array(3e7); for (;;) a.fill(1)", Outcome::time},
    {"searching a long array", "const a = new Array(2e6).fill(0); for (;;) a.indexOf(1)", Outcome::time},
    {"reversing a long array", "const a = new Array(2e6).fill(0); for (;;) a.reverse()", Outcome::time},
    {"joining a long array", "const a = new Array(1e6).fill('ab'); for (;;) a.join('')", Outcome::time},
    {"upper case", "const a = 'ab'.repeat(5e6); for (;;) a.toUpperCase()", Outcome::time},
    {"JSON of a long text", "const a = ['x'.repeat(5e6)]; for (;;) JSON.stringify(a)", Outcome::time},
    {"ops in a loop", "import { tensor } from 'weft'; let x = tensor([1]); for (;;) x = x.add(1).eval();",
     Outcome::time},
    {"a comparison that never ends", "[2, 1].sort(() => { for (;;); })", Outcome::time},
    {"a loop in a getter of attributes", "import { ones } from 'weft'; ones([2]).sum({ get axes() { for (;;); } })",
     Outcome::time},
    {"a loop inside compile", "import { compile, ones } from 'weft'; compile((x) => { for (;;); })(ones([1]))",
     Outcome::time},
    {"async functions in a circle", "async function f() { await null; return f() } await f()", Outcome::memory, "",
     Outcome::error},  // when the memory ends while a promise is settled, its waiters never run
    {"an await that nothing settles", "await new Promise(() => {})", Outcome::error, "nothing will settle"},

    // ---- Memory
    {"an array that grows", "const a = []; for (;;) a.push(new Array(1000).fill(1))", Outcome::memory,
     "limit of 64 MB"},
    {"a string that doubles", "let s = 'ab'; for (;;) s += s", Outcome::error},
    {"repeat", "'x'.repeat(2 ** 29).split('')", Outcome::memory},
    {"padStart", "''.padStart(2 ** 29, 'ab').toUpperCase()", Outcome::memory},
    {"a typed array", "const a = []; for (;;) a.push(new Float64Array(1e6))", Outcome::memory},
    {"an array buffer", "new ArrayBuffer(2 ** 40)", Outcome::error},
    {"one big array", "new Array(1e8).fill(0)", Outcome::memory},
    {"a map", "const m = new Map(); for (let i = 0;; ++i) m.set(i, { i })", Outcome::memory},
    {"closures", "let f = () => 0; const a = []; for (;;) { const g = f; a.push(g); f = () => g() }", Outcome::memory},
    {"JSON", "const a = Array(1e5).fill('x'.repeat(1000)); JSON.stringify(a)", Outcome::memory},
    {"promises that pile up", "const a = []; for (;;) a.push(new Promise(() => {}))", Outcome::memory},
    {"symbols", "const a = []; for (let i = 0;; ++i) a.push(Symbol('s' + i))", Outcome::memory},
    {"object keys", "const o = {}; for (let i = 0;; ++i) o['k' + i] = i", Outcome::memory},
    {"a pattern of captures", "new RegExp('(a)'.repeat(100000))", Outcome::error, "SyntaxError"},
    {"source text", "new Function('return ' + '1+'.repeat(3e7) + '1')", Outcome::memory},
    {"reading too much", "import { zeros } from 'weft'; zeros([1e10]).readSync()", Outcome::error,
     "the script may hold"},
    {"reading too much later", "import { zeros } from 'weft'; await zeros([1e10]).read()", Outcome::error,
     "the script may hold"},
    {"printing too much", "import { zeros } from 'weft'; console.log(zeros([1e10]))", Outcome::done},

    // ---- Stack
    {"a deep recursion", "const f = () => f() + 1; f()", Outcome::stack, "limit of 512 KB"},
    {"two functions that call each other", "const f = () => g(), g = () => f() + 1; f() + 1", Outcome::stack},
    {"a getter of itself", "const o = { get a() { return this.a } }; o.a", Outcome::stack},
    {"a proxy of itself",
     "const p = new Proxy({}, {}); Object.setPrototypeOf(Object.prototype.__proto__ ?? {}, null); const q = new "
     "Proxy({}, { get: (t, k, r) => r[k] }); q.x",
     Outcome::stack},
    {"toString of itself", "const o = { toString() { return `${this}` } }; `${o}`", Outcome::stack},
    {"arrays in arrays", "let a = []; for (let i = 0; i < 1e5; ++i) a = [a]; JSON.stringify(a)", Outcome::stack},
    {"flat of deep arrays", "let a = []; for (let i = 0; i < 1e5; ++i) a = [a]; a.flat(Infinity)", Outcome::stack},
    {"deep source", "eval('['.repeat(1e5) + ']'.repeat(1e5))", Outcome::stack},
    {"deep JSON", "JSON.parse('['.repeat(1e6))", Outcome::stack},
    {"compile inside of itself", "import { compile, ones } from 'weft'; const f = compile((x) => f(x)); f(ones([1]))",
     Outcome::error, "200 deep", Outcome::stack},
    {"a module that calls itself",
     "import { nn, ones } from 'weft'; class M extends nn.Module { forward(x) { return this(x) } } new M()(ones([1]))",
     Outcome::stack},

    // ---- Device memory
    {"a big tensor", "import { rand } from 'weft'; rand([1e9]).eval()", Outcome::device_memory, "268435456"},
    {"many tensors", "import { rand } from 'weft'; const a = []; for (;;) a.push(rand([1e6]).eval())",
     Outcome::device_memory},
    {"a huge extent", "import { rand } from 'weft'; rand([2 ** 52]).eval()", Outcome::device_memory},
    {"an overflowing shape", "import { rand } from 'weft'; rand([2 ** 40, 2 ** 40]).eval()", Outcome::error, "Error"},
    {"a matrix product", "import { rand } from 'weft'; rand([20000, 2]).matmul(rand([2, 20000])).eval()",
     Outcome::device_memory},
    {"a wide layer", "import { nn } from 'weft'; nn.linear(1e6, 1e6)", Outcome::device_memory, "parameters"},
    {"a big network", "import { nn } from 'weft'; nn.gpt({ width: 65536, heads: 8, layers: 900, vocabulary: 1e6 })",
     Outcome::device_memory},
    {"a chain of values that nobody asks for",
     "import { tensor } from 'weft'; let x = tensor([1]); for (;;) x = x.add(x.mul(0.5))", Outcome::time},
    {"many lazy values",
     "import { tensor } from 'weft'; const a = [], x = tensor([1]); for (let i = 0;; ++i) a.push(x.add(i))",
     Outcome::memory},

    // ---- Handles
    {"a forged handle", "import { Tensor } from 'weft'", Outcome::error, "SyntaxError"},
    {"a made-up object as tensor", "import { add } from 'weft'; add({ shape: [1], dtype: 'f32' }, 1)", Outcome::error,
     "not a tensor"},
    {"a tensor's prototype as this", "import { ones } from 'weft'; Object.getPrototypeOf(ones([1])).item()",
     Outcome::error, "not a tensor"},
    {"an object with its prototype",
     "import { ones } from 'weft'; const t = Object.create(Object.getPrototypeOf(ones([1]))); t.sum()", Outcome::error,
     "not a tensor"},
    {"a method on another object", "import { ones } from 'weft'; ones([1]).item.call({})", Outcome::error,
     "not a tensor"},
    {"a method on a module", "import { ones, nn } from 'weft'; ones([1]).dispose.call(nn.linear(1, 1))", Outcome::error,
     "not a tensor"},
    {"a method of variables on a tensor",
     "import { ones, variable } from 'weft'; variable(1).assign.call(ones([1]), 2)", Outcome::error, "not a variable"},
    {"a method of modules on a tensor", "import { ones, nn } from 'weft'; nn.linear(1, 1).parameters.call(ones([1]))",
     Outcome::error, "not a module"},
    {"another prototype for a handle",
     "import { ones, nn } from 'weft'; const t = ones([1]); Object.setPrototypeOf(t, "
     "Object.getPrototypeOf(nn.linear(1, 1))); t.summary()",
     Outcome::error, "not a module"},
    {"a proxy of a handle", "import { ones } from 'weft'; const p = new Proxy(ones([1]), {}); p.item()", Outcome::error,
     "not a tensor"},
    {"a disposed tensor", "import { ones } from 'weft'; const t = ones([1]); t.dispose(); t.sum()", Outcome::error,
     "disposed"},
    {"disposed twice",
     "import { ones } from 'weft'; const t = ones([1]); t.dispose(); t.dispose(); if (!t.isDisposed) throw 1",
     Outcome::done},
    {"disposed while an op reads it",
     "import { ones, add } from 'weft'; const t = ones([1]); t.sum({ get axes() { t.dispose(); return [0] } }); add(t, "
     "1)",
     Outcome::error, "disposed"},
    {"disposed inside of compile",
     "import { ones, compile } from 'weft'; compile((x) => { x.dispose(); return x.add(1) })(ones([1]))",
     Outcome::error, "disposed"},
    {"a value inside of compile",
     "import { ones, compile } from 'weft'; compile((x) => { x.item(); return x })(ones([1]))", Outcome::error,
     "compiled"},
    {"an argument that escapes compile",
     "import { ones, compile } from 'weft'; let t; compile((x) => { t = x; return x.add(1) })(ones([1])); t.item()",
     Outcome::error, "compiled"},
    {"a promise from compile", "import { ones, compile } from 'weft'; compile(async (x) => x)(ones([1]))",
     Outcome::error, "async"},
    {"an exception inside of compile",
     "import { ones, compile } from 'weft'; const f = compile((x) => { throw new TypeError('mine') }); f(ones([1]))",
     Outcome::error, "TypeError: mine"},
    {"Reflect.construct of a module", "import { nn } from 'weft'; Reflect.construct(nn.Module, [], Object); ",
     Outcome::done},
    {"a module without new", "import { nn } from 'weft'; nn.Module()", Outcome::error, "TypeError"},
    {"a module within itself", "import { nn } from 'weft'; const m = new nn.Module(); m.a = m", Outcome::error,
     "contain itself"},
    {"a module in two places",
     "import { nn } from 'weft'; const a = new nn.Module(), l = nn.linear(1, 1); a.x = l; a.y = l", Outcome::error,
     "already is"},
    {"modules in a circle",
     "import { nn } from 'weft'; const a = new nn.Module(), b = new nn.Module(); a.x = b; b.x = a", Outcome::error,
     "contain itself"},

    // ---- Prototypes and namespaces
    {"another Object.prototype",
     "Object.prototype.axes = [7]; Object.prototype.dtype = 'nope'; const { ones } = await import('weft'); if "
     "(ones([2]).sum().item() !== 2) throw 1",
     Outcome::done, ""},
    {"another Array.prototype",
     "Array.prototype.push = () => { throw 1 }; const { ones } = await import('weft'); ones([2]).toArray()",
     Outcome::done},
    {"a replaced Error", "globalThis.Error = 1; Error.prototype; const { add } = await import('weft'); add()",
     Outcome::error},
    {"an error class that throws",
     "import { UsageError, add } from 'weft'; Object.defineProperty(UsageError.prototype, 'message', { get() { throw 1 "
     "}, set() { throw 2 } }); add()",
     Outcome::error},
    {"writing to a namespace", "import * as weft from 'weft'; weft.add = 1", Outcome::error, "TypeError"},
    {"writing to nn", "import { nn } from 'weft'; nn.linear = 1", Outcome::error, "TypeError"},
    {"writing to optim", "import { optim } from 'weft'; delete optim.sgd", Outcome::error, "TypeError"},
    {"a poisoned promise",
     "Promise.prototype.then = () => { throw 1 }; const { ones } = await import('weft'); await ones([1]).read()",
     Outcome::done},
    {"a poisoned iterator",
     "import { tensor } from 'weft'; Array.prototype[Symbol.iterator] = function* () { for (;;) yield 1 }; tensor([1, "
     "2]).toArray()",
     Outcome::done},
    {"no shared memory", "new SharedArrayBuffer(8)", Outcome::error, "not defined"},
    {"no Atomics.wait", "Atomics.wait(new Int32Array(1), 0, 0)", Outcome::error, "not defined"},
    {"no modules of an engine", "import * as os from 'os'", Outcome::error, "unknown"},
    {"no std", "import * as std from 'qjs:std'", Outcome::error, "unknown"},
    {"no require", "require('fs')", Outcome::error, "not defined"},
    {"no process", "process.exit(0)", Outcome::error, "not defined"},

    // ---- Calls that are interrupted by the script's own functions
    {"a getter that throws in attributes",
     "import { ones } from 'weft'; ones([2]).sum({ get axes() { throw new RangeError('mine') } })", Outcome::error,
     "RangeError: mine"},
    {"valueOf that throws", "import { ones } from 'weft'; ones([2]).add({ valueOf() { throw 1 } })", Outcome::error,
     "not a tensor"},
    {"an array that shrinks while it is read",
     "import { tensor } from 'weft'; const a = [1, 2, 3]; Object.defineProperty(a, 0, { get() { a.length = 0; return 1 "
     "} }); tensor(a)",
     Outcome::error, "not a number"},
    {"a shape that grows while it is read",
     "import { ones } from 'weft'; const s = [2, 2]; Object.defineProperty(s, 0, { get() { s.push(3); return 2 } }); "
     "if (ones(s).rank !== 2) throw 1",
     Outcome::done},
    {"a detached buffer",
     "import { create } from 'weft'; const b = new ArrayBuffer(8); b.transfer(); create(b, [2], 'f32')", Outcome::error,
     ""},
    {"a buffer detached in the middle",
     "import { create } from 'weft'; const b = new Float32Array(2); create(b, [{ valueOf() { b.buffer.transfer(); "
     "return 2 } }], 'f32')",
     Outcome::error},
    {"a view beyond its buffer",
     "import { create } from 'weft'; const b = new ArrayBuffer(16, { maxByteLength: 32 }), v = new Float32Array(b, 8, "
     "2); b.resize(4); create(v, [2], 'f32')",
     Outcome::error},
    {"too few bytes", "import { create } from 'weft'; create(new Uint8Array(3), [2], 'f32')", Outcome::error,
     "3 bytes"},
    {"a negative shape", "import { create } from 'weft'; create(new Uint8Array(8), [-2], 'f32')", Outcome::error,
     "ShapeError"},
    {"a shape that is no number", "import { ones } from 'weft'; ones([NaN])", Outcome::error, "whole number"},
    {"a shape of fractions", "import { ones } from 'weft'; ones([1.5])", Outcome::error, "whole number"},
    {"a ragged array", "import { tensor } from 'weft'; tensor([[1, 2], [3]])", Outcome::error, "rows of 2 and of 1"},
    {"a deep array", "import { tensor } from 'weft'; let a = 1; for (let i = 0; i < 100; ++i) a = [a]; tensor(a)",
     Outcome::error, "deeper than 16"},
    {"an array of itself", "import { tensor } from 'weft'; const a = []; a.push(a); tensor(a)", Outcome::error,
     "deeper than 16"},
    {"an unknown attribute", "import { ones } from 'weft'; ones([2]).sum({ axess: 0 })", Outcome::error, "axess"},
    {"an unknown op", "import { dispatch } from 'weft'; dispatch('summ', [])", Outcome::error, "Did you mean sum"},
    {"an unknown dtype", "import { ones } from 'weft'; ones([2]).to('f33')", Outcome::error, "f33"},
    {"too many arguments", "import { ones } from 'weft'; ones([2]).exp(1, 2, 3)", Outcome::error, "it takes x"},
    {"an unknown option", "import { nn } from 'weft'; nn.linear(1, 2, { bais: true })", Outcome::error, "bais"},

    // ---- What is not granted
    {"files", "import { files } from 'weft'; files.readText('/etc/passwd')", Outcome::refused, "--allow-read"},
    {"writing", "import { files } from 'weft'; files.writeText('x', 'y')", Outcome::refused, "--allow-write"},
    {"saving", "import { nn } from 'weft'; nn.linear(1, 1).save('x.safetensors')", Outcome::refused, "--allow-write"},
    {"the network", "import { fetch } from 'weft'; await fetch('http://127.0.0.1:1/')", Outcome::refused,
     "--allow-net"},
    {"operations", "import { operations } from 'weft'; await operations.call('tensor.exp', {})", Outcome::refused,
     "--allow-operations"},
    {"registering", "import { operations } from 'weft'; operations.register({ namespace: 'x', name: 'y' }, () => 1)",
     Outcome::refused, "--allow-register"},
    {"an import from the root", "import '/etc/passwd'", Outcome::refused, "folder for modules"},
    {"an import by a path upwards", "import '../../../../etc/passwd'", Outcome::refused},
    {"an import at run time", "await import('/etc/passwd')", Outcome::refused},
    {"an import of a URL", "import 'http://localhost/x.js'", Outcome::error, "unknown"},

    // ---- Asynchronous bombs
    {"too many timers", "for (let i = 0; i < 20000; ++i) setTimeout(() => {}, 1e8)", Outcome::error, "10000 timers"},
    {"too many reads", "import { ones } from 'weft'; for (let i = 0; i < 10000; ++i) ones([4]).add(i).read()",
     Outcome::error, "under way"},
    {"a rejection that nobody handles", "Promise.reject(new TypeError('lost')); await null; await null", Outcome::error,
     "TypeError: lost"},
    {"a throw in a timer", "setTimeout(() => { throw new RangeError('late') }, 1)", Outcome::error, "RangeError: late"},
    {"a throw of nothing", "throw undefined", Outcome::error, "undefined"},
    {"a throw of an object", "throw { a: 1 }", Outcome::error, "a: 1"},
    {"ops without end",
     "import { registerOp } from 'weft'; for (let i = 0;; ++i) registerOp({ name: 'o' + i, inputs: ['x'], forward: 'x "
     "+ ' + i })",
     Outcome::error, "256"},
    {"an op that does not parse",
     "import { registerOp } from 'weft'; registerOp({ name: 'o', inputs: ['x'], forward: 'x +' })", Outcome::error,
     "o"},
    {"an op with the name of another",
     "import { registerOp } from 'weft'; registerOp({ name: 'exp', inputs: ['x'], forward: 'x' })", Outcome::error,
     "already"},
    {"a kernel that writes elsewhere",
     "import { registerKernel, ones } from 'weft'; const f = registerKernel({ name: 'k', inputs: ['x'], cpu: (i, o) => "
     "{ o[0] = new Float32Array(1) } }); f(ones([4])).eval()",
     Outcome::error, "resized"},
    {"a kernel that throws",
     "import { registerKernel, ones } from 'weft'; const f = registerKernel({ name: 'k', inputs: ['x'], cpu: () => { "
     "throw new RangeError('mine') } }); f(ones([4])).eval()",
     Outcome::error, "RangeError: mine"},
    {"a kernel that never ends",
     "import { registerKernel, ones } from 'weft'; const f = registerKernel({ name: 'k', inputs: ['x'], cpu: () => { "
     "for (;;); } }); f(ones([4])).eval()",
     Outcome::time},
    {"a kernel that asks for itself",
     "import { registerKernel, ones } from 'weft'; const x = ones([4]); const f = registerKernel({ name: 'k', inputs: "
     "['x'], cpu: () => { f(x).eval() } }); f(x).eval()",
     Outcome::error},
    {"a kernel with a detached result",
     "import { registerKernel, ones } from 'weft'; const f = registerKernel({ name: 'k', inputs: ['x'], cpu: (i, [o]) "
     "=> { o.buffer.transfer() } }); f(ones([4])).eval()",
     Outcome::error},
    {"a gradient that throws",
     "import { registerKernel, ones, grad } from 'weft'; const f = registerKernel({ name: 'k', inputs: ['x'], cpu: () "
     "=> {}, gradient: () => { throw new RangeError('mine') } }); grad((x) => f(x).sum())(ones([4]))",
     Outcome::error, "mine"},
};

class Attacks : public testing::TestWithParam<Attack> {};

TEST_P(Attacks, EndsByName) {
  const Attack& attack = GetParam();
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::milliseconds(attack.outcome == Outcome::time ? 150 : 30'000);
  const auto begin = std::chrono::steady_clock::now();
  const Ran ran = run_script(attack.text, options);
  if (attack.outcome == Outcome::time) {
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10) * test::kSlowdown) << attack.name;
  }
  if (ran.result.outcome != attack.other) {
    EXPECT_EQ(name_of(ran.result.outcome), name_of(attack.outcome)) << attack.name << ": " << ran.result.message;
  }
  EXPECT_NE(ran.result.message.find(attack.message), std::string::npos) << attack.name << ": " << ran.result.message;
}

INSTANTIATE_TEST_SUITE_P(Scripts, Attacks, testing::ValuesIn(kAttacks),
                         [](const auto& info) { return "A" + std::to_string(info.index); });

class FilesTest : public testing::Test {
 protected:
  FilesTest() {
    namespace fs = std::filesystem;
    fs::create_directories(folder.path() / "in/deep");
    fs::create_directories(folder.path() / "out");
    write("secret.txt", "secret");
    write("in/open.txt", "open");
    write("in/deep/x.js", "export const x = 7;");
    write("in/bad.ts", "const x: = 3;");
    fs::create_symlink(folder.path() / "secret.txt", folder.path() / "in/link.txt");
    fs::create_symlink(folder.path(), folder.path() / "in/up");
    fs::create_symlink("open.txt", folder.path() / "in/same.txt");
    fs::create_symlink(folder.path() / "secret.txt", folder.path() / "out/link.txt");
    ::mkfifo((folder.path() / "in/pipe").c_str(), 0600);
    options.read_folders = {folder.path() / "in"};
    options.write_folders = {folder.path() / "out"};
  }
  void write(const char* name, const char* text) { std::ofstream(folder.path() / name) << text; }
  // `$` stands for the folder.
  Result run(std::string text, const char* name = "main.js") {
    for (std::size_t at = 0; (at = text.find('$', at)) != std::string::npos;)
      text.replace(at, 1, folder.path().string());
    Isolate isolate(options);
    return isolate.run_text("import { files, ones, nn } from 'weft';\n" + text, name, folder.path() / "in");
  }
  TemporaryFolder folder;
  IsolateOptions options = small_limits();
};

TEST_F(FilesTest, GrantedFoldersOnly) {
  const struct {
    const char* text;
    Outcome outcome;
  } kCases[] = {
      {"if (files.readText('$/in/open.txt') !== 'open') throw 1", Outcome::done},
      {"if (files.readText('$/in/deep/../open.txt') !== 'open') throw 1", Outcome::done},
      {"if (files.list('$/in').length !== 7) throw files.list('$/in')", Outcome::done},
      {"files.writeText('$/out/new.txt', 'new'); files.remove('$/out/new.txt')", Outcome::done},
      {"files.save('$/out/a.safetensors', { a: ones([2]) }); files.save('$/out/a.npy', ones([2]))", Outcome::done},
      {"nn.linear(2, 3).save('$/out/m.safetensors')", Outcome::done},
      {"files.readText('$/secret.txt')", Outcome::refused},
      {"files.readText('$/in/../secret.txt')", Outcome::refused},
      {"files.readText('$/in/deep/../../secret.txt')", Outcome::refused},
      {"files.readText('$/in/link.txt')", Outcome::refused},
      {"files.readText('$/in/same.txt')", Outcome::refused},
      {"files.readText('$/in/up/secret.txt')", Outcome::refused},
      {"files.readText('$/in/up/in/open.txt')", Outcome::refused},
      {"files.list('$/in/up')", Outcome::refused},
      {"files.exists('$/in/up/secret.txt')", Outcome::refused},
      {"files.load('$/in/up/x.npy')", Outcome::refused},
      {"files.readText('$/inside.txt')", Outcome::refused},
      {"files.readText('$/in\\0/open.txt')", Outcome::refused},
      {"files.readText('')", Outcome::refused},
      {"files.readText('/proc/self/environ')", Outcome::refused},
      {"files.readText('$/out/link.txt')", Outcome::refused},
      {"files.readText('$/in/pipe')", Outcome::error},
      {"files.readText('$/in')", Outcome::refused},
      {"files.readText('$/in/none.txt')", Outcome::error},
      {"files.writeText('$/in/open.txt', 'x')", Outcome::refused},
      {"files.writeText('$/out/link.txt', 'x')", Outcome::refused},
      {"files.writeText('$/out/../secret.txt', 'x')", Outcome::refused},
      {"files.writeText('$/out/none/x.txt', 'x')", Outcome::error},
      {"files.remove('$/in/open.txt')", Outcome::refused},
      {"nn.linear(2, 3).save('$/in/m.safetensors')", Outcome::refused},
      {"nn.linear(2, 3).load('$/secret.txt')", Outcome::refused},
      {"files.readText({ toString() { return '$/in/open.txt' } })", Outcome::error},
      // Modules
      {"const { x } = await import('./deep/x.js'); if (x !== 7) throw 1", Outcome::done},
      {"const { x } = await import('./deep/x'); if (x !== 7) throw 1", Outcome::done},
      {"await import('../secret.txt')", Outcome::refused},
      {"await import('./link.txt')", Outcome::refused},
      {"await import('./up/in/deep/x.js')", Outcome::refused},
      {"await import('./deep/../../secret.txt')", Outcome::refused},
      {"await import('./none.js')", Outcome::error},
      {"await import('./bad.ts')", Outcome::error},
      {"await import('./pipe')", Outcome::error},
  };
  for (const auto& each : kCases) {
    const Result result = run(each.text);
    EXPECT_EQ(name_of(result.outcome), name_of(each.outcome)) << each.text << ": " << result.message;
  }
  std::ifstream secret(folder.path() / "secret.txt");
  std::string text;
  secret >> text;
  EXPECT_EQ(text, "secret");
}

TEST(ScriptTest, IsolatesShareNothing) {
  Isolate left(small_limits()), right(small_limits());
  EXPECT_EQ(left.evaluate("globalThis.shared = ones([2]); Object.prototype.leak = 1; registerOp({ name: 'mine', "
                          "inputs: ['x'], forward: 'x * 3' })(shared).sum().item()")
                .value,
            "6");
  EXPECT_EQ(right.evaluate("typeof shared").value, "\"undefined\"");
  EXPECT_EQ(right.evaluate("({}).leak === undefined").value, "true");
  EXPECT_EQ(right.evaluate("typeof mine").value, "\"undefined\"");
  EXPECT_EQ(
      right.evaluate("registerOp({ name: 'mine', inputs: ['x'], forward: 'x * 4' })(ones([2])).sum().item()").value,
      "8");
}

TEST(ScriptTest, ALimitIsForOneEvaluationAndTheIsolateGoesOn) {
  Isolate isolate(small_limits());
  EXPECT_EQ(isolate.evaluate("let kept = 5").outcome, Outcome::done);
  EXPECT_EQ(isolate.evaluate("for (;;);").outcome, Outcome::time);
  EXPECT_EQ(isolate.evaluate("const f = () => f() + 1; f()").outcome, Outcome::stack);
  EXPECT_EQ(isolate.evaluate("const all = []; for (;;) all.push(new Float64Array(1e6))").outcome, Outcome::memory);
  EXPECT_EQ(isolate.evaluate("all.length = 0; kept").value, "5");
}

TEST(ScriptTest, StopsFromAnotherThread) {
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::milliseconds(0);
  Isolate isolate(options);
  std::jthread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    isolate.stop();
  });
  EXPECT_EQ(isolate.run_text("for (;;);", "loop.js").outcome, Outcome::time);
}

TEST(ScriptTest, HandlesGoWithTheirLastReference) {
  Isolate isolate(small_limits());
  const std::size_t before = isolate.handle_count();
  isolate.evaluate("for (let i = 0; i < 1000; ++i) ones([1000]).add(i).eval(); 0");
  EXPECT_LE(isolate.handle_count(), before + 2);
  isolate.evaluate("(() => { const a = { t: ones([4]) }; a.self = a; })(); collectGarbage()");
  EXPECT_LE(isolate.handle_count(), before + 2);
}

TEST(ScriptTest, TheLeakReportNamesLines) {
  IsolateOptions options = small_limits();
  options.track_handles = true;
  Isolate isolate(options);
  isolate.run_text(
      "import { rand } from 'weft';\nglobalThis.kept = [];\nfor (let i = 0; i < 3; ++i)\n  "
      "kept.push(rand([1000]).eval());\n",
      "leaks.js");
  const std::string report = isolate.leak_report();
  EXPECT_NE(report.find("12000 bytes  3 Tensor"), std::string::npos) << report;
  EXPECT_NE(report.find("leaks.js:4"), std::string::npos) << report;
}

TEST(ScriptTest, CompletesNames) {
  Isolate isolate(small_limits());
  isolate.evaluate("const model = { layers: 1, loss: 2 }; let x = ones([2])");
  EXPECT_EQ(isolate.completions("1 + model.l"), (std::vector<std::string>{"1 + model.layers", "1 + model.loss"}));
  EXPECT_FALSE(isolate.completions("x.softm").empty());
  EXPECT_EQ(isolate.completions("nn.lin"), (std::vector<std::string>{"nn.linear"}));
  EXPECT_TRUE(isolate.completions("nothing.").empty());
}

TEST(ScriptTest, KnowsWhatIsIncomplete) {
  Isolate isolate(small_limits());
  for (const char* text : {"const f = () => {", "[1,", "`a ${b", "/* x", "f(`}`"})
    EXPECT_TRUE(isolate.is_incomplete(text)) << text;
  for (const char* text : {"1 + 1", "'{'", "`${1}`", "// {", "{ }", ")"})
    EXPECT_FALSE(isolate.is_incomplete(text)) << text;
}

}  // namespace
}  // namespace weft::script
