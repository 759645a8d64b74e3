// The nouns of Weft in scripts. A script throws where something is wrong; values are compared with C++.
#include <gtest/gtest.h>

#include "graph/op.hpp"
#include "script/run_script.hpp"
#include "weft/compile.hpp"
#include "weft/grad.hpp"
#include "weft/nn.hpp"
#include "weft/ops.hpp"
#include "weft/ops/random.hpp"
#include "weft/optim.hpp"
#include "weft/session.hpp"

namespace weft::script {
namespace {

constexpr std::string_view kHead = R"js(
import * as weft from "weft";
const { tensor, variable, grad, compile, nn, optim, files, operations } = weft;
const same = (a, b) => { if (JSON.stringify(a) !== JSON.stringify(b)) throw new Error(`${JSON.stringify(a)} is not ${JSON.stringify(b)}`); };
const near = (a, b, e = 1e-5) => { if (!(Math.abs(a - b) <= e)) throw new Error(`${a} is not near ${b}`); };
)js";

struct Case {
  const char* name;
  const char* text;
  const char* printed = "";
};

const Case kCases[] = {
    {"BigInts beyond 64 bits",
     R"js(const refused = (f, part) => { try { f(); } catch (e) { if (!e.message.includes(part)) throw e; return; }
       throw new Error(part + ' was not refused'); };
     refused(() => tensor([2n ** 63n]), "element is 9223372036854775808n, which does not fit i64");
     refused(() => tensor([2n ** 64n], { dtype: "u64" }), "does not fit u64 or i64");
     refused(() => tensor([1n]).add(2n ** 70n), "does not fit i64");
     refused(() => weft.full([2], -(2n ** 63n) - 1n, "i64"), "does not fit i64");
     refused(() => tensor([10n ** 100n]), "...n, which");
     same(String(tensor([2n ** 63n], { dtype: "u64" }).toArray()[0]), "9223372036854775808");
     same(String(tensor([-(2n ** 63n)]).toArray()[0]), "-9223372036854775808"))js"},
    {"vjp and jvp",
     "const x = tensor([1, 2]), f = (v) => v.mul(v.sum()); const [y, g] = weft.vjp(f, x, tensor([1, 0])); "
     "same([y.toArray(), g.toArray()], [[3, 6], [4, 1]]); const [z, t] = weft.jvp(f, x, tensor([1, 0])); "
     "same(t.toArray(), [4, 2]); const [[a, b], [ga, gb]] = weft.vjp((u, v) => [u.mul(v), u.add(v)], [x, tensor([3, "
     "4])], "
     "[weft.ones([2]), null]); same([a.toArray(), ga.toArray(), gb.toArray()], [[3, 8], [3, 4], [1, 2]])"},
    {"Jacobians and Hessians",
     "const x = tensor([1, 2]); same(weft.jacobian((v) => v.mul(v.sum()), x).toArray(), [[4, 1], [2, 5]]); "
     "same(weft.jacobian((v) => v.mul(v.sum()), x, { forward: true }).toArray(), [[4, 1], [2, 5]]); "
     "same(weft.hessian((v) => v.mul(v).mul(v).sum(), x).toArray(), [[6, 0], [0, 12]])"},
    {"vmap",
     "const w = weft.ones([3, 2]), x = weft.arange(12, { dtype: 'f32' }).reshape([4, 3]); const loss = (w, row) => "
     "row.matmul(w).square().sum(); const each = weft.vmap(grad(loss), { inAxes: [null, 0] })(w, x); same(each.shape, "
     "[4, 3, 2]); "
     "same(each.get(1).toArray(), grad(loss)(w, x.get(1)).toArray()); const [s, d] = weft.vmap((r) => [r.sum(), "
     "r.mul(2)])(x); "
     "same([s.toArray(), d.shape], [[3, 12, 21, 30], [4, 3]])"},
    {"checkpoint",
     "const x = tensor([1, 2]); same(grad((v) => weft.checkpoint((u) => u.mul(u).sum(), v))(x).toArray(), [2, 4])"},
    {"customGradient",
     "const through = weft.customGradient((v) => v.round(), ({ gradients: [g] }) => g); const x = tensor([0.4, 1.6]); "
     "same(through(x).toArray(), [0, 2]); same(grad((v) => { const y = through(v); return y.mul(y).sum(); "
     "})(x).toArray(), [0, 4])"},
    {"lists of numbers",
     R"js(const x = tensor([[0.25, 0.5], [0.75, 2.5]]);
     const [counts, rows, columns] = weft.histogramdd(x, { bins: [2, 1], low: [0, 0.5], high: [1, 3] });
     same([counts.toArray(), rows.toArray(), columns.toArray()], [[[1], [1]], [0, 0.5, 1], [0.5, 3]]);
     same(weft.histogramdd(x, { bins: [1, 1], low: 0, high: 4 })[2].toArray(), [0, 4]);
     try { weft.histogramdd(x, { low: [0, 'a'] }); throw new Error('no error'); }
     catch (e) { if (!/not a number/.test(e.message)) throw e; })js"},
    {"hooks on gradients",
     R"js(const x = tensor([1, 2]), v = variable([1, 2]); let seen = [];
     same(grad((u) => weft.withGradientHook(u, (g) => { seen.push(g.toArray()); return g.mul(10); }).mul(u).sum())(x).toArray(), [11, 22]);
     same(seen, [[1, 2]]);
     const first = weft.registerHook(v, (g) => g.mul(2)), second = weft.registerHook(v, () => null);
     v.mul(v).sum().backward(); same(v.gradient.toArray(), [4, 8]);
     first.remove(); first.remove(); second.remove(); v.clearGradient(); v.mul(v).sum().backward(); same(v.gradient.toArray(), [2, 4]);)js"},
    {"eval lets go of what a value was made from",
     R"js(const x = tensor([1, 2]), w = variable([3, 4]);
     const looked = x.mul(2); same(looked.toArray(), [2, 4]); same(grad(looked.sum(), x).toArray(), [2, 2]);
     const given = x.mul(2).eval(), kept = w.value.mul(x).eval(); same(grad(kept.sum(), w.value).toArray(), [1, 2]);
     try { grad(given.sum(), x); throw new Error('no error'); } catch (e) { if (!/let go/.test(e.message)) throw e; }
     same(grad((v) => v.mul(v).eval().sum())(x).toArray(), [2, 4]);)js"},
    {"a hook and its variable keep each other until remove()",
     R"js(const make = () => { const w = variable([1, 2]); return weft.registerHook(w, (g) => g.mul(w.rank)); };
     weft.collectGarbage(); const before = weft.handleCount();
     let hook = make(); weft.collectGarbage(); same(weft.handleCount(), before + 1);
     hook.remove(); hook = null; weft.collectGarbage(); same(weft.handleCount(), before);
     (() => { weft.registerHook(variable([1, 2]), (g) => g); })(); weft.collectGarbage(); same(weft.handleCount(), before);)js"},
    {"hooks on modules",
     R"js(class Twice extends nn.Module { forward(x) { return x.mul(2); } }
     const m = new Twice(), x = tensor([1, 2]); let log = [];
     const handles = [m.registerForwardPreHook((self, x) => { log.push(self === m); return x.add(1); }),
       m.registerForwardPreHook((self, x) => { log.push(x.toArray()); }),
       m.registerForwardHook((self, x, y) => { log.push(x.toArray(), y.toArray()); return y.mul(10); }),
       m.registerForwardHook((self, x, y) => null)];
     same(m(x).toArray(), [40, 60]); same(log, [true, [2, 3], [2, 3], [4, 6]]);
     same(m.forward(x).toArray(), [2, 4]);
     for (const h of handles) { h.remove(); h.remove(); }
     same(m(x).toArray(), [2, 4]);
     const order = [];
     const a = m.registerOutputGradientHook((self, g) => { order.push('out', g.shape); return g.mul(3); });
     const b = m.registerInputGradientHook((self, g) => { order.push('in', g.shape); return g.add(1); });
     same(grad((u) => m(u).sum())(x).toArray(), [7, 7]); same(order, ['out', [2], 'in', [2]]);
     const whole = compile((u) => grad((v) => m(v).sum())(u)); same(whole(x).toArray(), [7, 7]); const traced = order.length;
     same(whole(x).toArray(), [7, 7]); same(order.length, traced);
     a.remove(); b.remove(); same(grad((u) => m(u).sum())(x).toArray(), [2, 2]);
     const layer = nn.linear(2, 3); let shapes;
     layer.registerForwardHook((self, x, y) => { shapes = [x.shape, y.shape]; });
     nn.sequential(layer, (y) => y.relu())(weft.ones([4, 2])); same(shapes, [[4, 2], [4, 3]]);
     const lstm = nn.lstm(2, 3); let keys; lstm.registerForwardHook((self, x, y) => { keys = Object.keys(y); });
     lstm.registerOutputGradientHook((self, g) => g); lstm(weft.ones([1, 1, 2])); same(keys, ['output', 'h', 'c']);
     const ids = nn.embedding(4, 2); ids.registerInputGradientHook(() => { throw new Error('integers have no gradient'); });
     same(ids(tensor([1], { dtype: 'i32' })).shape, [1, 2]);)js"},
    {"hooks that misbehave",
     R"js(const refused = (f, part) => { try { f(); } catch (e) { if (!e.message.includes(part)) throw e; return; }
       throw new Error(part + ' was not refused'); };
     const x = tensor([1, 2]);
     class Same extends nn.Module { forward(x) { return x; } }
     const m = new Same();
     for (const bad of [undefined, null, 3, {}, 'f']) {
       refused(() => m.registerForwardHook(bad), 'not a function');
       refused(() => weft.withGradientHook(x, bad), 'not a function');
       refused(() => weft.registerHook(variable([1]), bad), 'not a function');
     }
     refused(() => weft.registerHook(x, () => null), 'withGradientHook');
     refused(() => weft.withGradientHook(3, () => null), 'x');
     refused(() => weft.withGradientHook(tensor([1], { dtype: 'i32' }), () => null), 'float');
     refused(() => m.registerForwardHook.call({}, () => null), 'not a module');
     let h = m.registerForwardHook(() => { h.remove(); throw new Error('of the hook'); });
     refused(() => m(x), 'of the hook'); same(m(x).toArray(), [1, 2]);
     h = m.registerForwardPreHook(() => 3); same(m(x), 3); h.remove();
     h = m.registerForwardPreHook(() => null); refused(() => m(), 'takes an input'); h.remove();
     h = m.registerForwardHook(() => m(x)); refused(() => m(x), 'stack'); h.remove();
     for (const give of [() => 3, () => 'g', () => ({}), () => tensor([1, 2, 3])]) {
       h = m.registerOutputGradientHook(give); refused(() => grad((v) => m(v).sum())(x), ''); h.remove();
     }
     h = m.registerInputGradientHook(() => { throw new Error('no gradient'); });
     refused(() => grad((v) => m(v).sum())(x), 'no gradient'); h.remove();
     { const lost = new Same(); lost.registerOutputGradientHook((self, g) => g.mul(self === lost ? 5 : 0)); globalThis.y = (v) => lost(v); }
     weft.collectGarbage(); same(grad((v) => y(v).sum())(x).toArray(), [5, 5]);
     const cycle = new Same(); cycle.handle = cycle.registerForwardHook(() => void cycle);
     for (let i = 0; i < 20000; ++i) weft.withGradientHook(x, (g) => g.mul(i));)js"},
    {"transforms refuse",
     "const x = tensor([1, 2]); const refused = (f, part) => { try { f(); } catch (e) { if (!e.message.includes(part)) "
     "throw e; return; } "
     "throw new Error(part + ' was not refused'); }; refused(() => weft.vjp(3, x, x), 'not a function'); "
     "refused(() => weft.vjp(() => 1, x, x), 'not a tensor'); refused(() => weft.vjp((v) => v, x, tensor([1])), "
     "'shape'); "
     "refused(() => weft.jacobian((v) => [v, v], x), 'several tensors'); refused(() => weft.vmap((v) => v, { inAxes: "
     "null })(x), "
     "'mapped'); refused(() => weft.vmap((v) => v.mul(v.sum().item()))(x), 'vmap'); refused(() => weft.vmap((v) => v, "
     "{ axes: 0 })(x), "
     "'axes'); refused(() => weft.hessian(() => { throw new Error('own error'); }, x), 'own error'); refused(() => "
     "grad((v) => weft.customGradient((u) => u.mul(1), () => [])(v).sum())(x), 'custom_gradient'); refused(() => { for "
     "(let i = 0; i < "
     "300; ++i) "
     "weft.customGradient((v) => v, () => null); }, 'outside of loops'); const deep = (n) => (v) => n ? "
     "weft.vmap(deep(n - 1))(v) : v; "
     "refused(() => weft.vmap(deep(5))(x), 'axis')"},
    {"operations of a schema",
     "const specs = operations.fromSchema({ title: 'Shop', $defs: { Pet: { type: 'string' }, sell: { properties: { "
     "input: { $ref: "
     "'#/$defs/Pet' }, output: { type: 'integer' } } } } }); same(specs.map((s) => [s.namespace, s.name, s.kind]), "
     "[['Shop', 'sell', "
     "'mutation']]); same(specs[0].input, { $ref: '#/$defs/Pet', $defs: { Pet: { type: 'string' } } }); "
     "same(operations.fromSchema([{ name: 'a', scopes: undefined }].map(({ name }) => ({ name })), { namespace: 'b' "
     "})[0].namespace, 'b'); "
     "try { operations.fromSchema({}); throw new Error('was not refused') } catch (e) { same(e.name, 'UsageError') }"},
    {"losses of the table",
     "near(nn.smoothL1(tensor([0, 0]), tensor([0.5, 2])).item(), (0.125 + 1.5) / 2); same(typeof nn.tripletMargin, "
     "'function'); "
     "const p = tensor([[[0.6, 0.4]], [[0.3, 0.7]]]).log(); near(nn.ctc(p, tensor([[1]], { dtype: 'i32' }), "
     "tensor([2], { dtype: "
     "'i32' }), tensor([1], { dtype: 'i32' }), { reduction: 'sum' }).item(), -Math.log(0.82))"},
    {"mixtures and more layers",
     "const m = nn.mixture(4, 8, 3); const { output, balanceLoss } = m(weft.ones([5, 4])); same([output.shape, "
     "balanceLoss.shape], "
     "[[5, 4], []]); same(m.parameters().length, 4); same(nn.upsample(2)(weft.ones([1, 1, 2, 2])).shape, [1, 1, 4, "
     "4]); "
     "same(nn.kMeans(2, 3)(weft.ones([5, 2])).shape, [5, 3]); same(nn.instanceNorm(2)(weft.ones([1, 2, 3])).shape, [1, "
     "2, 3])"},
    {"nested arrays",
     "same(tensor([[1, 2], [3, 4]]).toArray(), [[1, 2], [3, 4]]); same(tensor(5).shape, []); same(tensor([]).shape, "
     "[0])"},
    {"dtypes",
     "same(tensor([true, false]).dtype, 'bool'); same(tensor([1n]).dtype, 'i64'); same(tensor(new Int8Array(2)).dtype, "
     "'i8'); same(tensor([1], { dtype: 'f16' }).dtype, 'f16')"},
    {"typed arrays",
     "same(Array.from(tensor(new Float32Array([1, 2])).readSync()), [1, 2]); same(tensor([3], { dtype: 'i64' }).item() "
     "=== "
     "3n, true)"},
    {"shape option", "same(tensor([1, 2, 3, 4], { shape: [2, 2] }).toArray(), [[1, 2], [3, 4]])"},
    {"facts",
     "const x = weft.zeros([2, 3]); same([x.shape, x.rank, x.size, x.dtype, x.device], [[2, 3], 2, 6, 'f32', 'cpu'])"},
    {"attributes by place and by name",
     "const x = tensor([[1, 2], [3, 4]]); same(x.sum(0).toArray(), [4, 6]); same(x.sum({ axis: 1, keepdims: true "
     "}).toArray(), [[3], [7]]); same(weft.sum(x, [0, 1], true).toArray(), [[10]])"},
    {"camel case",
     "same(tensor([1, 2]).logSoftmax().shape, [2]); same(weft.layerNorm, weft.layerNorm); "
     "near(weft.log_softmax(tensor([0, 0])).get(0).item(), -Math.log(2))"},
    {"numbers as operands",
     "same(tensor([1, 2]).add(1).toArray(), [2, 3]); same(weft.sub(10, tensor([1, 2])).toArray(), [9, 8]); "
     "same(tensor([1, 2], { dtype: 'i32' }).mul(3).dtype, 'i32')"},
    {"optional inputs",
     "const x = weft.randn([2, 4]); same(weft.layerNorm(x, null, null, 1e-5).shape, [2, 4]); same(weft.layerNorm(x, { "
     "eps: 1e-3 }).shape, [2, 4])"},
    {"repeated inputs",
     "const x = tensor([1]); same(weft.concat([x, x, x]).toArray(), [1, 1, 1]); same(weft.concat(x, x, { axis: 0 "
     "}).toArray(), [1, 1])"},
    {"several results",
     "const [a, b] = weft.split(tensor([1, 2, 3]), [1, 2]); same([a.toArray(), b.toArray()], [[1], [2, 3]]); const "
     "[values] = tensor([3, 1, 2]).topk(2); same(values.toArray(), [3, 2])"},
    {"parts",
     "const x = tensor([[1, 2, 3], [4, 5, 6]]); same(x.get(1).toArray(), [4, 5, 6]); same(x.get(null, [0, "
     "2]).toArray(), [[1, 2], [4, 5]]); same(x.get(-1, -1).item(), 6); same(x.get(x.gt(3)).toArray(), [4, 5, 6]); "
     "same(x.get(null, [null, null, 2]).toArray(), [[1, 3], [4, 6]])"},
    {"in place", "const x = tensor([1, 2]), y = x.add_(1); same(y === x, true); same(x.toArray(), [2, 3])"},
    {"variables",
     "const v = variable([1, 2], { name: 'v' }); v.assign(v.mul(3)); same(v.toArray(), [3, 6]); v.value = tensor([0, "
     "1]); same(v.value.toArray(), [0, 1]); same([v.name, v.requiresGrad, v.shape], ['v', true, [2]])"},
    {"backward",
     "const v = variable([1, 2]); v.square().sum().backward(); same(v.gradient.toArray(), [2, 4]); v.clearGradient(); "
     "same(v.gradient, null)"},
    {"gradients",
     "const x = tensor([1, 2]); same(grad(x.square().sum(), x).toArray(), [2, 4]); same(grad((y) => "
     "y.square().sum())(x).toArray(), [2, 4]); same(grad(x.square(), [x], tensor([1, 10]))[0].toArray(), [2, 40])"},
    {"second order", "near(grad((x) => grad((y) => y.pow(3).sum())(x).sum())(tensor([2])).item(), 12)"},
    {"compile",
     "let runs = 0; const f = compile((x, y) => { ++runs; return { sum: x.add(y), product: x.mul(y) } }); const r = "
     "f(tensor([1, 2]), 3); same([r.sum.toArray(), r.product.toArray()], [[4, 5], [3, 6]]); f(tensor([1, 2]), 4); "
     "same([runs, f.traceCount], [1, 1]); f(tensor([1]), 4); same(f.traceCount, 2)"},
    {"compile keeps state",
     "const n = variable(0); const count = compile(() => { n.assign(n.add(1)) }); count(); count(); same(n.item(), 2)"},
    {"explain",
     "const f = compile((x) => x.exp()); f(tensor([1])); if (!f.explain().includes('kernels')) throw f.explain(); "
     "same(f.kernelCount, 1)"},
    {"modules",
     "class M extends nn.Module { a = nn.linear(2, 3); list = [nn.linear(3, 3), nn.linear(3, 1)]; w = "
     "this.parameter('w', [1], { init: 'ones' }); forward(x) { for (const l of [this.a, ...this.list]) x = l(x); "
     "return x.mul(this.w) } } const m = new M(); same(m(weft.ones([4, 2])).shape, [4, 1]); "
     "same(Object.keys(m.namedParameters()), ['w', 'a.weight', 'a.bias', 'list.0.weight', 'list.0.bias', "
     "'list.1.weight', 'list.1.bias']); same(m.parameterCount, 26)"},
    {"module modes",
     "const m = nn.sequential(nn.dropout(0.5), nn.linear(4, 4)); same(m.isTraining, true); same(m.eval().isTraining, "
     "false); const x = weft.ones([1, 4]); same(m(x).toArray(), m(x).toArray())"},
    {"layers",
     "const x = weft.randn([2, 3, 8, 8]); same(nn.conv2d(3, 4, 3, { padding: 1, stride: 2 })(x).shape, [2, 4, 4, 4]); "
     "same(nn.maxPool(2)(x).shape, [2, 3, 4, 4]); same(nn.batchNorm(3)(x).shape, [2, 3, 8, 8]); same(nn.groupNorm(1, "
     "3)(x).shape, [2, 3, 8, 8]); same(nn.flatten()(x).shape, [2, 192]); same(nn.adaptiveAvgPool(1)(x).shape, [2, 3, "
     "1, 1]); same(nn.convTranspose2d(3, 2, 2, { stride: 2 })(x).shape, [2, 2, 16, 16]); same(nn.embedding(5, "
     "7)(tensor([1, 2], { dtype: 'i32' })).shape, [2, 7]); same(nn.lstm(4, 5)(weft.randn([3, 2, 4])).output.shape, [3, "
     "2, 5]); same(nn.gpt({ vocabulary: 11, context: 8, layers: 1, heads: 2, width: 8 })(weft.zeros([1, 4], "
     "'i32')).shape, [1, 4, 11])"},
    {"losses",
     "const p = tensor([[1, 2]]), t = tensor([[0, 2]]); near(nn.mse(p, t).item(), 0.5); near(nn.l1(p, t, { reduction: "
     "'sum' }).item(), 1); near(nn.crossEntropy(tensor([[0, 0]]), tensor([1], { dtype: 'i32' })).item(), Math.log(2)); "
     "near(nn.binaryCrossEntropy(tensor([0]), tensor([1])).item(), Math.log(2))"},
    {"optimizers",
     "for (const make of [optim.sgd, optim.adam, optim.adamW]) { const v = variable([5]); const o = make([v], { "
     "learningRate: 0.5 }); for (let i = 0; i < 200; ++i) o.step(grad(v.square().sum(), o)); near(v.item(), 0, 0.05); "
     "same(o.stepCount, 200); o.learningRate = 0.25; same(o.learningRate, 0.25) }"},
    {"attention",
     "const a = nn.multiheadAttention(8, 2), x = weft.rand([2, 3, 8]), y = weft.rand([2, 5, 8]); same(a(x).shape, [2, "
     "3, 8]); same(a(x, "
     "y).shape, [2, 3, 8]); const seen = weft.ones([3, 5], { dtype: 'bool' }); near(a(x, y, y, seen).sub(a(x, "
     "y)).abs().sum().item(), 0); "
     "const t = nn.transformerEncoderLayer(8, 2, { feedForward: 16, dropout: 0, gelu: true, normFirst: true }); "
     "same(t(x).shape, [2, 3, 8]); same(t.parameters().length, 12)"},
    {"further optimizers",
     "const rates = { rmsprop: 0.05, adagrad: 1, adadelta: 20, adamax: 0.1, nadam: 0.1, radam: 0.1, asgd: 0.1, rprop: "
     "0.1, lion: 0.05, "
     "adafactor: 0.5, lamb: 0.05, muon: 0.1 }; for (const name in rates) { const v = variable([[5, -3]]); const o = "
     "optim[name]([v], { learningRate: rates[name], clipNorm: 100 }); for (let i = 0; i < 100; ++i) "
     "o.step(grad(v.square().sum(), "
     "o)); same([name, v.square().sum().item() < 4], [name, true]) }"},
    {"options of optimizers",
     "const v = variable([1]); optim.rmsprop([v], { learningRate: 1, alpha: 0, epsilon: 1, centered: false, momentum: "
     "0.5 "
     "}).step([tensor([1])]); near(v.item(), 0.5); for (const wrong of [() => optim.lion([v], { epsilon: 1 }), () => "
     "optim.rmsprop([v], { alpha: 1 })]) { let message = ''; try { wrong(); } catch (error) { message = error.message; "
     "} "
     "same(/epsilon|alpha/.test(message), true); }"},
    {"further schedules",
     "near(optim.schedule({ kind: 'exponential', rate: 2, factor: 0.5 })(3), 0.25); near(optim.schedule({ kind: "
     "'polynomial', rate: 1, steps: 10, power: 2 })(5), 0.25); near(optim.schedule({ kind: 'restarts', rate: 1, every: "
     "4 "
     "})(6), 0.5); near(optim.schedule({ kind: 'oneCycle', rate: 1, steps: 21, rise: 11, firstRate: 0.1 })(15), 0.5); "
     "near(optim.schedule({ kind: 'cyclic', rate: 3, finalRate: 1, rise: 4, every: 12 })(8), 2)"},
    {"schedules",
     "const s = optim.schedule({ kind: 'linear', rate: 1, finalRate: 0, steps: 10 }); near(s(5), 0.5); near(s(20), 0)"},
    {"no gradient", "const v = variable([1]); const y = weft.noGrad(() => v.mul(2)); same(grad(y.sum(), v).item(), 0)"},
    {"autocast", "same(weft.autocast('bf16', () => weft.ones([2, 2]).matmul(weft.ones([2, 2]))).dtype, 'bf16')"},
    {"reading later",
     "const x = weft.ones([1000]).mul(2); const [a, b] = await Promise.all([x.read(), x.sum().read()]); same([a[999], "
     "b[0]], [2, 2000]); same((await x.evalAsync()) === x, true)"},
    {"order of events",
     "const seen = []; setTimeout(() => seen.push('timer'), 0); queueMicrotask(() => seen.push('micro')); "
     "Promise.resolve().then(() => seen.push('promise')); seen.push('now'); await new Promise((f) => setTimeout(f, "
     "20)); same(seen, ['now', 'micro', 'promise', 'timer'])"},
    {"intervals",
     "let n = 0; const t = setInterval(() => { if (++n === 3) clearInterval(t) }, 1); await new Promise((f) => "
     "setTimeout(f, 50)); same(n, 3)"},
    {"primitive calls",
     "const t = weft.create(new Float32Array([1, 2]), [2], 'f32'); const [y] = weft.dispatch('mul', [t, t]); "
     "same(Array.from(new Float32Array(weft.read(y))), [1, 4]); weft.write(t, new Float32Array([7, 8])); "
     "same(t.toArray(), [7, 8]); same(weft.dispatch('softmax', [t], { axis: -1 })[0].shape, [2]); "
     "same(weft.dispatch('concat', [t, t], { axis: 0 })[0].shape, [4])"},
    {"own ops",
     "const f = weft.registerOp({ name: 'my_wave', inputs: ['x'], forward: 'sin(x) * k', attributes: { k: 2 } }); "
     "near(f(tensor([1])).item(), 2 * Math.sin(1)); near(f(tensor([1]), { k: 3 }).item(), 3 * Math.sin(1)); "
     "near(grad((x) => f(x).sum())(tensor([0])).item(), 2); const g = weft.registerOp({ name: 'my_wave', inputs: "
     "['x'], forward: 'sin(x) * k', attributes: { k: 2 } }); near(g(tensor([1])).item(), 2 * Math.sin(1))"},
    {"own kernels",
     "const f = weft.registerKernel({ name: 'rev', inputs: ['x'], shape: ([x]) => [{ dtype: x.dtype, shape: x.shape "
     "}], cpu: ([x], [y]) => { y.set(x); y.reverse() }, gradient: (c) => [f(c.outputGradients[0])] }); "
     "same(f(tensor([1, 2, 3])).toArray(), [3, 2, 1]); same(grad((x) => f(x).mul(tensor([1, 2, 3])).sum())(tensor([0, "
     "0, 0])).toArray(), [3, 2, 1]); same(Array.from(await f(tensor([4, 5])).read()), [5, 4])"},
    {"einsum", "same(weft.einsum('ij,jk->ik', weft.ones([2, 3]), weft.ones([3, 4])).toArray()[0], [3, 3, 3, 3])"},
    {"using", "let t; { using x = weft.ones([2]); t = x } same(t.isDisposed, true)"},
    {"random numbers",
     "weft.manualSeed(5); const a = weft.randn([3]).toArray(); weft.manualSeed(5); same(weft.randn([3]).toArray(), a)"},
    {"errors have classes",
     "try { tensor([1, 2]).add(tensor([1, 2, 3])); throw 1 } catch (e) { same([e instanceof weft.ShapeError, e "
     "instanceof weft.WeftError, e instanceof Error, e.name], [true, true, true, 'ShapeError']); if "
     "(e.message.includes('called at')) throw e }"},
    {"an own op is named in errors",
     "const f = weft.registerOp({ name: 'plain_name', inputs: ['x'], forward: 'x' }); try { f(); throw 1 } catch (e) { "
     "same(e.message, 'plain_name: input x is missing') }"},
    {"labels", "same(weft.ones([1]).named('input').label, 'input')"},
    {"casts", "same(tensor([1.7]).to('i32').item(), 1); same(tensor([1]).to('cpu').device, 'cpu')"},
    {"console",
     "console.log('a', 1, [1, 'b'], { c: null, d: undefined }, true, 5n, new Map(), () => 1); console.log(tensor([1, "
     "2])); console.error('e')",
     "a 1 [1, \"b\"] { c: null, d: undefined } true 5n Map(0) {} [Function]\n[1, 2]  f32 [2]\ne\n"},
    {"operators, loops and JSON",
     "const x = tensor([[1, 2], [3, 4]]), one = tensor([2.5]); same([one + 1, one > 2, one * one, Math.max(one, 1)], "
     "[3.5, true, 6.25, "
     "2.5]); same([...x].map((row) => row.toArray()), [[1, 2], [3, 4]]); same(JSON.stringify({ x, one }), "
     "'{\"x\":[[1,2],[3,4]],\"one\":[2.5]}'); same(`${one}`, '[2.5]  f32 [1]'); for (const wrong of [() => x + 1, () "
     "=> x < x, "
     "() => 'x' + x, () => [...tensor(1)]]) try { wrong(); throw 1 } catch (e) { same(e.name, 'UsageError') }"},
    {"collections and other objects",
     "class Point { x = 1 } console.log(new Map([['a', 1], [{ b: 2 }, [3]]]), new Set([1, 'b']), new Date(0), new "
     "Date(NaN), /a+/gi, Symbol('s'), -0, new Point(), { 'a-b': 1, 2: 3 })",
     "Map(2) { \"a\" => 1, { b: 2 } => [3] } Set(2) { 1, \"b\" } 1970-01-01T00:00:00.000Z Invalid Date /a+/gi "
     "Symbol(s) -0 "
     "Point { x: 1 } { 2: 3, \"a-b\": 1 }\n"},
    {"cycles and holes",
     "const o = { n: [1] }; o.self = o; o.again = o.n; console.log(o, [, 1, , ,], Object.assign([1], { k: 2 }))",
     "{ n: [1], self: [Circular], again: [1] } [<1 empty item>, 1, <2 empty items>] [1, k: 2]\n"},
    {"format texts",
     "console.log('%s is %d (%i, %o) %j%% %x', 'Bob', '4.5', 4.5, { a: 1 }, [2], 'rest'); console.log('100%', 1); "
     "console.log('%d', 'x', 2n)",
     "Bob is 4.5 (4, { a: 1 }) [2]% %x rest\n100% 1\nNaN 2n\n"},
    {"groups and tables",
     "console.group('g'); console.log('a\\nb'); console.groupEnd(); console.table([{ a: 1, b: 'x' }, { a: 22 }]); "
     "console.count(); console.count(); console.assert(1 > 2, 'less'); console.assert(true)",
     "g\n  a\n  b\n┌─────────┬────┬─────┐\n│ (index) │ a  │ b   │\n├─────────┼────┼─────┤\n│ 0       │ 1  │ \"x\" │\n"
     "│ 1       │ 22 │     │\n└─────────┴────┴─────┘\ndefault: 1\ndefault: 2\nAssertion failed: less\n"},
    {"printing runs no code",
     "for (const on of [Map, Set, Date, RegExp, Array, Object]) for (const name of ['forEach', 'toISOString', "
     "'toString', 'push', "
     "'entries']) if (on.prototype[name]) on.prototype[name] = () => { throw 1 }; Map.prototype[Symbol.iterator] = () "
     "=> { throw "
     "2 }; Object.defineProperty(RegExp.prototype, 'source', { get() { throw 3 } }); class A { static get name() { "
     "throw 4 } } "
     "console.log({ get x() { throw 1 } }, new Proxy({}, { ownKeys() { throw 1 } }), new Map([[1, 2]]), new Set([3]), "
     "new "
     "Date(0), /b/y, new A(), Object.create(new Proxy({}, { getOwnPropertyDescriptor() { throw 5 } })), '%d', "
     "Symbol('t'))",
     "{ x: [Getter] } [Proxy] Map(1) { 1 => 2 } Set(1) { 3 } 1970-01-01T00:00:00.000Z /b/y {} {} %d Symbol(t)\n"},
    {"elements",
     "const e = weft.h('a', { b: 1 }, 'c', ['d']); same([e.type, e.props.b, e.children], ['a', 1, ['c', 'd']])"},
};

class Api : public testing::TestWithParam<Case> {};

TEST_P(Api, Works) {
  const Case& c = GetParam();
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::seconds(60);
  const Ran ran = run_script(std::string(kHead) + c.text, options);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << c.name << ": " << ran.result.message;
  if (*c.printed) {
    EXPECT_EQ(ran.printed, c.printed) << c.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Scripts, Api, testing::ValuesIn(kCases),
                         [](const auto& info) { return "C" + std::to_string(info.index); });

// Each op of the table, called through the script with the inputs of its own cases, gives what C++ gives.
TEST(ScriptOps, EveryOpOfTheTableIsAFunction) {
  Isolate isolate(small_limits());
  ASSERT_EQ(isolate.evaluate("globalThis.all = await import('weft'); 1").value, "1");
  std::size_t count = 0;
  for (const graph::OpRow* row : graph::op_rows()) {
    if (row->name.starts_with("script_")) continue;
    const Result result = isolate.evaluate("typeof all['" + row->name + "']");
    EXPECT_EQ(result.value, "\"function\"") << row->name << result.message;
    ++count;
  }
  EXPECT_GT(count, 300u);
}

TEST(ScriptTypes, TypeScriptAndJsxAreCompiled) {
  const auto run = [](const char* text, const char* name) {
    IsolateOptions options = small_limits();
    options.time_limit = std::chrono::seconds(20);
    return run_script(text, options, name);
  };
  const Ran types =
      run("import { tensor, type Tensor } from 'weft';\ninterface A { b: number }\nenum E { One = 1, Two }\n"
          "const f = <T,>(x: T, y?: string): T => x as T;\nclass C<T> { constructor(public readonly n: number) {} }\n"
          "const t: Tensor = tensor([f<number>(E.Two)]);\nconsole.log(t.item() satisfies number, new C<A>(4).n!);",
          "a.ts");
  EXPECT_EQ(types.printed, "2 4\n") << types.result.message;
  const Ran jsx = run("import { h } from 'weft';\nconsole.log(JSON.stringify(<a b={1}>x{[<c/>]}</a>))", "a.jsx");
  EXPECT_EQ(
      jsx.printed,
      "{\"type\":\"a\",\"props\":{\"b\":1},\"children\":[\"x\",{\"type\":\"c\",\"props\":{},\"children\":[]}]}\n");
  // Lines stay where they were.
  const Ran line = run("interface A {\n  b: number\n}\n\nthrow new Error('here');", "a.ts");
  EXPECT_NE(line.result.message.find("a.ts:5"), std::string::npos) << line.result.message;
  EXPECT_EQ(run("const x: = 3;", "a.ts").result.outcome, Outcome::error);
  // What is not compiled is named; namespaces of types alone disappear.
  EXPECT_NE(
      run("export namespace Geometry {\n  export const pi = 3;\n}", "a.ts").result.message.find("namespace Geometry"),
      std::string::npos);
  EXPECT_EQ(run("declare namespace G { type A = 1 }\nconst text = `\nnamespace H {`; console.log(text.length)", "a.ts")
                .printed,
            "14\n");
  EXPECT_NE(run("function log(f: any) {}\nclass A { @log f() {} }", "a.ts").result.message.find("decorators"),
            std::string::npos);
}

// The same seed gives a script's model the bits of the model in C++, and training the same losses.
TEST(ScriptModels, TrainAsInCpp) {
  struct Model : nn::Module {
    nn::Child<nn::Linear> hidden{this, "hidden", 2, 16}, output{this, "output", 16, 1};
    Tensor operator()(const Tensor& x) const { return output(tanh(hidden(x))); }
  };
  float expected = 0;
  {
    const Session session({.threads = 1});
    const auto in = session.enter();
    manual_seed(7);
    Model model;
    optim::AdamW optimizer(model, {.learning_rate = 0.01});
    const Tensor x = tensor<float>({1, 2, 3, 4, 5, 6}, Shape{3, 2}), y = tensor<float>({1, 0, 1}, Shape{3, 1});
    auto step = compile([&](Tensor inputs, Tensor wanted) {
      const Tensor loss = nn::mse(model(inputs), wanted);
      optimizer.step(grad(loss, optimizer.parameters()));
      return loss;
    });
    for (int i = 0; i < 20; ++i) expected = step(x, y).item<float>();
  }
  const Ran ran = run_script(std::string(kHead) + R"js(
    weft.manualSeed(7);
    class Model extends nn.Module { hidden = nn.linear(2, 16); output = nn.linear(16, 1); forward(x) { return this.output(this.hidden(x).tanh()) } }
    const model = new Model(), optimizer = optim.adamW(model, { learningRate: 0.01 });
    const x = tensor([[1, 2], [3, 4], [5, 6]]), y = tensor([[1], [0], [1]]);
    const step = compile((inputs, wanted) => { const loss = nn.mse(model(inputs), wanted); optimizer.step(grad(loss, optimizer)); return loss });
    let last; for (let i = 0; i < 20; ++i) last = step(x, y).item();
    console.log(last);
  )js");
  EXPECT_EQ(std::stof(ran.printed), expected) << ran.result.message;
}

TEST(ScriptOperations, AreCalledAndRegistered) {
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::seconds(20);
  options.operations = {"tensor.*"};
  options.registers = {"models"};
  const Ran ran = run_script(std::string(kHead) + R"js(
    const { result } = await operations.call("tensor.exp", { x: tensor([0]) });
    same(result.toArray(), [1]);
    same(operations.list().every(({ id }) => id.startsWith("tensor.")), true);
    same(operations.describe("tensor.softmax").name, "softmax");
    const refused = async (f, name) => { try { await f() } catch (e) { same(e.name, name); return } throw new Error("was not refused") };
    await refused(() => operations.call("training.start", {}), "AccessError");
    await refused(() => operations.register({ namespace: "tensor", name: "mine" }, () => 1), "AccessError");
    await refused(() => operations.call("tensor.exp", { x: "none" }), "OperationError");
    operations.register({ namespace: "models", name: "double", input: { type: "object", required: ["x"] } }, async ({ x }) => {
      await x.read();
      const { result } = await operations.call("tensor.mul", { x, y: 2 });
      return { y: result };
    });
    same((await operations.call("models.double", { x: tensor([4]) })).y.toArray(), [8]);
    await refused(() => operations.call("models.double", {}), "OperationError");
    operations.register({ namespace: "models", name: "fails" }, () => { throw new RangeError("mine") });
    try { await operations.call("models.fails", {}); throw 1 } catch (e) { if (!e.message.includes("RangeError: mine")) throw e }
    operations.register({ namespace: "models", name: "never" }, () => new Promise(() => {}));
    await refused(() => operations.call("models.never", {}, { timeout: 0.1 }), "OperationError");
    // Each has one more call under way inside it, and 64 may be at once.
    const all = await Promise.all(Array.from({ length: 30 }, (_, i) => operations.call("models.double", { x: tensor([i]) })));
    same(all.map(({ y }) => y.item()), Array.from({ length: 30 }, (_, i) => 2 * i));
  )js",
                             options);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
}

TEST(ScriptOperations, WorkflowsAreElements) {
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::seconds(20);
  options.operations = {"tensor.*"};
  options.registers = {"models"};
  const Ran ran = run_script(std::string(kHead) + R"js(
    const { h, workflow } = weft, { Operation, Sequential, Parallel, Map } = workflow;
    const refused = async (f, name) => { try { await f() } catch (e) { same(e.name, name); return e.message } throw new Error("was not refused") };
    operations.register({ namespace: "models", name: "twice" }, ({ x }) => ({ x: 2 * x }));
    const steps = h(Sequential, { output: { all: "$.previous", sum: "$.sum.result" } },
      h(Operation, { id: "sum", name: "tensor.sum", input: { x: "$.input.x" } }),
      h(Parallel, null, h(Operation, { name: "models.twice", input: { x: 4 } }),
        h(Map, { over: [1, 2], as: "n" }, h(Operation, { name: "models.twice", input: { x: "$.n" } }))));
    same(workflow.check(steps), []);
    const answer = await workflow.run(steps, { x: tensor([1, 2]) });
    same(answer.all, [{ x: 8 }, [{ x: 2 }, { x: 4 }]]);
    same(answer.sum.item(), 3);
    const wrong = h(Sequential, {}, h(Operation, { name: "tensor.sum", input: {} }), h(Operation, { name: "tensor.summ" }));
    same(workflow.check(wrong).map(({ code, path }) => [code, path]), [["UNKNOWN_OPERATION", "/tree/children/1/props/name"]]);
    await refused(() => workflow.run(wrong), "UsageError");
    same((await refused(() => workflow.check(h(Operation, { name: "training.start" })), "AccessError")).includes("not granted"), true);
    await refused(() => workflow.check(h("Loop", {})), "UsageError");
    operations.register({ namespace: "models", name: "never" }, () => new Promise(() => {}));
    await refused(() => workflow.run(h(Operation, { name: "models.never" }), {}, { timeout: 0.1 }), "OperationError");
  )js",
                             options);
  EXPECT_EQ(ran.result.outcome, Outcome::done) << ran.result.message;
}

// A server's exchange calls a script that runs on a thread of its own; its operations go with it.
TEST(ScriptOperations, ServeAnExchange) {
  const auto registry = std::make_shared<operations::Registry>();
  const auto exchange = std::make_shared<operations::Exchange>(registry);
  IsolateOptions options = small_limits();
  options.time_limit = std::chrono::milliseconds(0);
  options.registers = {"models"};
  options.exchange = exchange;
  Isolate isolate(options);
  ASSERT_EQ(isolate
                .run_text("import { operations } from 'weft'; operations.register({ namespace: 'models', name: "
                          "'triple', scopes: ['models:run'] }, ({ x }) => ({ y: x.mul(3) }))",
                          "m.js")
                .message,
            "");
  std::thread client([&] {
    const operations::Identity right{.id = "a", .scopes = {"models:run"}}, wrong{.id = "b"};
    EXPECT_THROW(exchange->call("models.triple", Value::object({{"x", tensor<float>(2)}}), {.identity = wrong}),
                 operations::OperationError);
    const auto answer = exchange->call("models.triple", Value::object({{"x", tensor<float>(2)}}), {.identity = right});
    EXPECT_EQ(answer.data["y"].tensor().item<float>(), 6);
    isolate.stop();
  });
  EXPECT_EQ(isolate.serve().outcome, Outcome::time);
  client.join();
}

TEST(ScriptTypes, DeclarationsHaveEveryOp) {
  const std::string text = type_declarations();
  for (const graph::OpRow* row : graph::op_rows())
    if (!row->name.starts_with("script_")) {
      EXPECT_NE(text.find(row->name + "("), std::string::npos) << row->name;
    }
}

}  // namespace
}  // namespace weft::script
