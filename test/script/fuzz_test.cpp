// Random programs over the whole surface. Each ends within its limits, by itself or by an error; nothing crashes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "graph/op.hpp"
#include "script/run_script.hpp"

namespace weft::script {
namespace {

class Writer {
 public:
  explicit Writer(std::uint64_t seed) : random_(seed) {
    for (const graph::OpRow* row : graph::op_rows())
      if (!row->name.starts_with("script_")) ops_.push_back(row->name);
  }

  std::string program() {
    std::string text =
        "import * as weft from 'weft';\nconst { nn, optim, tensor, variable, grad, compile, files, operations } = "
        "weft;\n"
        "let v = [tensor([[1, 2], [3, 4]]), variable([1, 2]), nn.linear(2, 2), 3, null];\n";
    const int count = 3 + number(12);
    for (int i = 0; i < count; ++i)
      text += "try { v.push(" + (number(6) ? expression(3) : statement()) + "); } catch (e) { String(e); }\n";
    return text;
  }

 private:
  int number(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  std::string pick(std::initializer_list<const char*> list) {
    return list.begin()[number(static_cast<int>(list.size()))];
  }

  std::string leaf() {
    switch (number(9)) {
      case 0: return pick({"0", "-1", "1", "2", "0.5", "NaN", "Infinity", "2 ** 31", "2 ** 53", "-0", "1e300", "3n"});
      case 1:
        return pick(
            {"null", "undefined", "true", "''", "'f32'", "'axis'", "Symbol()", "() => 1", "(x) => x", "globalThis"});
      case 2:
        return pick({"[]", "[0]", "[1, 2]", "[[1, 2], [3, 4]]", "[-1]", "[NaN]", "[[0, 1]]", "new Array(5)", "['a']"});
      case 3:
        return pick({"{}", "{ axis: 0 }", "{ axis: -1, keepdims: true }", "{ dtype: 'i32' }", "{ shape: [2, 2] }",
                     "{ get axis() { throw 1 } }", "{ p: 0.5 }"});
      case 4:
        return pick({"new Float32Array(4)", "new Uint8Array(3)", "new ArrayBuffer(8)", "new BigInt64Array(2)",
                     "new DataView(new ArrayBuffer(4))"});
      case 5:
        return pick({"weft.ones([2, 2])", "weft.zeros([3], 'i32')", "weft.arange(6)", "weft.randn([2, 3])",
                     "weft.ones([])", "weft.zeros([0, 2])", "tensor([true, false])"});
      default: return "v[" + std::to_string(number(8)) + "]";
    }
  }
  std::string arguments(int depth) {
    std::string text;
    for (int i = number(4); i > 0; --i) text += (text.empty() ? "" : ", ") + expression(depth - 1);
    return text;
  }
  std::string expression(int depth) {
    if (depth <= 0) return leaf();
    const std::string& op = ops_[static_cast<std::size_t>(number(static_cast<int>(ops_.size())))];
    switch (number(8)) {
      case 0:
      case 1: return "weft['" + op + "'](" + arguments(depth) + ")";
      case 2:
      case 3: return expression(depth - 1) + "?.['" + op + "']?.(" + arguments(depth) + ")";
      case 4: {
        const std::string name = pick({"linear", "conv2d", "layerNorm", "sequential", "lstm", "gpt", "dropout",
                                       "batchNorm", "maxPool", "embedding", "mse", "crossEntropy"});
        return "nn." + name + "(" + arguments(depth) + ")";
      }
      case 5:
        return expression(depth - 1) + "?." +
               pick({"item", "toArray", "readSync", "read", "dispose", "get", "to", "backward", "eval", "assign",
                     "summary", "parameters", "named", "add_", "step", "forward"}) +
               "?.(" + arguments(depth) + ")";
      case 6: {
        const std::string name =
            pick({"grad", "compile", "tensor", "variable", "weft.create", "weft.read", "weft.write", "weft.dispatch",
                  "weft.registerOp", "weft.explain", "weft.noGrad", "weft.einsum", "optim.sgd", "optim.adamW",
                  "operations.call", "files.readText", "weft.h", "weft.fetch"});
        return name + "(" + arguments(depth) + ")";
      }
      default: return leaf();
    }
  }
  std::string statement() {
    return pick({"(() => { for (let i = 0; i < 50; ++i) v.push(tensor([i]).add(i)); })()",
                 "compile((x) => x.add(v[0]))(v[0])", "compile((x) => { v.push(x); return x.mul(2) })(v[1])",
                 "grad((x) => x.square().sum())(v[0])", "Object.setPrototypeOf(v[0], null)", "v.sort()", "v.length = 4",
                 "(v[2].x = nn.linear(1, 1))", "(v[0].sum = 5)", "v[0].read().then((r) => v.push(r))",
                 "weft.collectGarbage()", "delete Object.getPrototypeOf(v[0]).add", "new Proxy(v[0], {})",
                 "structuredClone?.(v[0])", "(class extends nn.Module { a = v[2]; forward(x) { return this.a(x) } })",
                 "Reflect.ownKeys(weft).length"});
  }
  std::mt19937_64 random_;
  std::vector<std::string> ops_;
};

TEST(ScriptFuzz, RandomProgramsEndWithinTheirLimits) {
  const char* const wanted = std::getenv("WEFT_TEST_PROGRAMS");
  const int count = wanted ? std::atoi(wanted) : 40;
  for (int seed = 0; seed < count; ++seed) {
    const std::string text = Writer(static_cast<std::uint64_t>(seed)).program();
    IsolateOptions options = small_limits();
    options.time_limit = std::chrono::milliseconds(2000);
    const Ran ran = run_script(text, options);
    ASSERT_NE(ran.result.outcome, Outcome::time) << "seed " << seed << "\n" << text;
  }
}

}  // namespace
}  // namespace weft::script
