// Speed of everything on the CPU that is not a matrix product: fused elementwise chains, updates of parameters,
// normalisations, reductions, attention. Memory-bound ones are compared with memcpy of the same bytes on the same threads.
// Times are the best of many; a row names its size, so bytes and operations can be checked.
//   bench_elementwise [chain]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/backend.hpp"
#include "backend/cpu/isa.hpp"
#include "base/threads.hpp"

namespace weft {
namespace {

using kernel::Level;
using kernel::LoopKernel;
using kernel::Operand;
using kernel::Plan;
using kernel::Step;
using kernel::StepKind;
using kernel::View;
using scalar::Op;
using scalar::Reduction;

double best_milliseconds(const std::function<void()>& work, double seconds = 0.4) {
  using Clock = std::chrono::steady_clock;
  work();
  double best = 1e30;
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  for (int i = 0; i < 5 || Clock::now() < end; ++i) {
    const auto start = Clock::now();
    work();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
  }
  return best;
}

/// A plan of f32 kernels over external buffers.
class Bench {
 public:
  Bench() : cpu_(cpu::make_cpu_backend()) {}

  Operand buffer(Extent count, float low = -2, float high = 2) {
    const int index = static_cast<int>(plan_.buffers.size());
    plan_.buffers.push_back({index, static_cast<std::size_t>(count) * 4, "x"});
    buffers_.push_back(cpu_->allocate(static_cast<std::size_t>(count) * 4, "x"));
    std::vector<float> host(static_cast<std::size_t>(count));
    std::uint32_t state = 12345;
    for (float& x : host)
      x = low + (high - low) * static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) / 16777216.0f;
    cpu_->upload(*buffers_.back(), 0, count, DType::f32, host.data());
    return {index, DType::f32, 0, count};
  }
  void begin(const char* name, Extent outer, Extent inner = 1) {
    loop_ = {};
    loop_.name = name;
    loop_.outer = outer, loop_.inner = inner;
  }
  int load(Operand operand, View view, Level level = Level::outer) {
    loop_.inputs.push_back(operand);
    Step s{StepKind::load};
    s.operand = static_cast<int>(loop_.inputs.size()) - 1;
    s.view = std::move(view);
    s.level = level;
    return add(s);
  }
  int constant(double value) {
    Step s{StepKind::constant};
    s.value = value;
    return add(s);
  }
  int map(Op op, int a, int b = -1, int c = -1) {
    Step s{StepKind::map};
    s.op = op, s.a = a, s.b = b, s.c = c;
    for (const int arg : {a, b, c})
      if (arg >= 0 && loop_.steps[static_cast<std::size_t>(arg)].level == Level::inner) s.level = Level::inner;
    return add(s);
  }
  int reduce(Reduction r, int a) {
    Step s{StepKind::reduce};
    s.reduction = r, s.a = a;
    return add(s);
  }
  void store(int value, Operand operand, View view) {
    loop_.outputs.push_back(operand);
    loop_.stores.push_back({value, static_cast<int>(loop_.outputs.size()) - 1, std::move(view)});
  }
  void end() { plan_.kernels.push_back(loop_); }
  void add_kernel(kernel::Kernel k) { plan_.kernels.push_back(std::move(k)); }

  double milliseconds() {
    const auto program = cpu_->compile(plan_);
    if (std::getenv("WEFT_BENCH_SOURCE") != nullptr) fmt::print("{}", program->source());
    return best_milliseconds([&] { program->run(buffers_); });
  }

 private:
  int add(Step s) {
    loop_.steps.push_back(std::move(s));
    return static_cast<int>(loop_.steps.size()) - 1;
  }
  std::unique_ptr<backend::Backend> cpu_;
  Plan plan_;
  std::vector<backend::BufferPtr> buffers_;
  LoopKernel loop_;
};

View contiguous(Extent n) { return {{n}, {1}, 0, {}}; }
View same(Extent n) { return {{n}, {0}, 0, {}}; }

/// memcpy of `bytes` in pieces on all threads, the same way again and again.
double copy_milliseconds(Extent bytes) {
  const auto cpu = cpu::make_cpu_backend();
  std::vector<char> from(static_cast<std::size_t>(bytes), 1), to(static_cast<std::size_t>(bytes), 2);
  const Extent piece = std::max<Extent>(1 << 16, bytes / 64);
  return best_milliseconds([&] {
    parallel_for((bytes + piece - 1) / piece, [&](Extent t) {
      std::memcpy(to.data() + t * piece, from.data() + t * piece,
                  static_cast<std::size_t>(std::min(piece, bytes - t * piece)));
    });
  });
}

void report(const std::string& name, double milliseconds, double bytes, const std::string& note = {}) {
  fmt::print("{:<44} {:>9.3f} ms {:>8.1f} GB/s  {}\n", name, milliseconds, bytes / milliseconds * 1e-6, note);
  std::fflush(stdout);
}

void chain_of_six() {
  const Extent n = 16 << 20;
  Bench b;
  const Operand x = b.buffer(n), y = b.buffer(n);
  b.begin("chain", n);
  int v = b.load(x, contiguous(n));
  v = b.map(Op::mul, v, b.constant(1.5));
  v = b.map(Op::add, v, b.constant(0.25));
  v = b.map(Op::max, v, b.constant(0));
  v = b.map(Op::mul, v, v);
  v = b.map(Op::sub, v, b.constant(1));
  v = b.map(Op::abs, v);
  b.store(v, y, contiguous(n));
  b.end();
  const double copy = copy_milliseconds(n * 4), ours = b.milliseconds();
  report("six elementwise ops, 16 M", ours, 8.0 * n, fmt::format("memcpy {:.3f} ms, ratio {:.2f}", copy, ours / copy));
}

void adamw(Extent n) {
  Bench b;
  const Operand p = b.buffer(n), g = b.buffer(n), m = b.buffer(n), v = b.buffer(n, 0, 1),
                scalars = b.buffer(4, 0.1f, 1);
  b.begin("adamw", n);
  const int rate = b.load(scalars, same(n));
  const int c1 = b.load(scalars, {{n}, {0}, 1, {}}), c2 = b.load(scalars, {{n}, {0}, 2, {}});
  const int grad = b.load(g, contiguous(n)), old = b.load(p, contiguous(n));
  const int m1 =
      b.map(Op::add, b.map(Op::mul, b.load(m, contiguous(n)), b.constant(0.9)), b.map(Op::mul, grad, b.constant(0.1)));
  const int v1 = b.map(Op::add, b.map(Op::mul, b.load(v, contiguous(n)), b.constant(0.999)),
                       b.map(Op::mul, b.map(Op::mul, grad, grad), b.constant(0.001)));
  const int down = b.map(Op::add, b.map(Op::sqrt, b.map(Op::mul, v1, c2)), b.constant(1e-8));
  const int step = b.map(Op::add, b.map(Op::div, b.map(Op::mul, m1, c1), down), b.map(Op::mul, old, b.constant(0.01)));
  b.store(b.map(Op::sub, old, b.map(Op::mul, rate, step)), p, contiguous(n));
  b.store(m1, m, contiguous(n));
  b.store(v1, v, contiguous(n));
  b.end();
  const double copy = copy_milliseconds(n * 14), ours = b.milliseconds();
  report(fmt::format("AdamW, {:.1f} M parameters", n * 1e-6), ours, 28.0 * n,
         fmt::format("memcpy of as many bytes {:.3f} ms, ratio {:.2f}", copy, ours / copy));
}

void gelu(bool exact) {
  const Extent n = 1024 * 512;
  Bench b;
  const Operand x = b.buffer(n), y = b.buffer(n);
  b.begin("gelu", n);
  const int v = b.load(x, contiguous(n));
  int gate;
  if (exact) {
    gate = b.map(Op::erf, b.map(Op::mul, v, b.constant(std::sqrt(0.5))));
  } else {
    const int cubic = b.map(Op::mul, b.map(Op::mul, b.map(Op::mul, v, v), v), b.constant(0.044715));
    gate = b.map(Op::tanh, b.map(Op::mul, b.map(Op::add, v, cubic), b.constant(0.7978845608028654)));
  }
  b.store(b.map(Op::mul, b.map(Op::mul, v, b.constant(0.5)), b.map(Op::add, gate, b.constant(1))), y, contiguous(n));
  b.end();
  report(exact ? "gelu (erf) 1024 x 512" : "gelu (tanh) 1024 x 512", b.milliseconds(), 8.0 * n);
}

void unary(Op op) {
  const Extent n = 1024 * 512;
  Bench b;
  const Operand x = b.buffer(n, 0.1f, 3), y = b.buffer(n);
  b.begin("unary", n);
  b.store(b.map(op, b.load(x, contiguous(n))), y, contiguous(n));
  b.end();
  const double t = b.milliseconds();
  report(fmt::format("{} 1024 x 512", scalar::name_of(op)), t, 8.0 * n, fmt::format("{:.2f} ns each", t * 1e6 / n));
}

void layer_norm(Extent rows, Extent width) {
  Bench b;
  const Operand x = b.buffer(rows * width), y = b.buffer(rows * width), gain = b.buffer(width), shift = b.buffer(width);
  b.begin("layer_norm", rows, width);
  const View view{{rows, width}, {width, 1}, 0, {}}, row{{rows, width}, {0, 1}, 0, {}};
  const int v = b.load(x, view, Level::inner);
  const int scale = b.constant(1.0 / static_cast<double>(width));
  const int centred = b.map(Op::sub, v, b.map(Op::mul, b.reduce(Reduction::sum, v), scale));
  const int variance = b.map(Op::mul, b.reduce(Reduction::sum, b.map(Op::mul, centred, centred)), scale);
  const int normal = b.map(Op::mul, centred, b.map(Op::rsqrt, b.map(Op::add, variance, b.constant(1e-5))));
  b.store(b.map(Op::add, b.map(Op::mul, normal, b.load(gain, row, Level::inner)), b.load(shift, row, Level::inner)), y,
          view);
  b.end();
  report(fmt::format("layer norm {} x {}", rows, width), b.milliseconds(), 8.0 * rows * width);
}

/// The gradient of a layer norm with respect to its input, plus that of the residual branch.
void layer_norm_gradient(Extent rows, Extent width) {
  Bench b;
  const Operand x = b.buffer(rows * width), dy = b.buffer(rows * width), residual = b.buffer(rows * width),
                dx = b.buffer(rows * width);
  const Operand gain = b.buffer(width), mean = b.buffer(rows), variance = b.buffer(rows, 0.5f, 1);
  b.begin("layer_norm_gradient", rows, width);
  const View view{{rows, width}, {width, 1}, 0, {}}, row{{rows, width}, {0, 1}, 0, {}}, column{{rows}, {1}, 0, {}};
  const int scale = b.constant(1.0 / static_cast<double>(width));
  const int inverse = b.map(Op::rsqrt, b.load(variance, column));
  const int normal = b.map(Op::mul, b.map(Op::sub, b.load(x, view, Level::inner), b.load(mean, column)), inverse);
  const int d = b.map(Op::mul, b.load(dy, view, Level::inner), b.load(gain, row, Level::inner));
  const int sum = b.map(Op::mul, b.reduce(Reduction::sum, d), scale);
  const int dot = b.map(Op::mul, b.reduce(Reduction::sum, b.map(Op::mul, d, normal)), scale);
  const int inner = b.map(Op::sub, b.map(Op::sub, d, sum), b.map(Op::mul, normal, dot));
  b.store(b.map(Op::add, b.load(residual, view, Level::inner), b.map(Op::mul, inner, inverse)), dx, view);
  b.end();
  report(fmt::format("layer norm gradient {} x {}", rows, width), b.milliseconds(), 16.0 * rows * width);
}

void softmax(Extent rows, Extent width) {
  Bench b;
  const Operand x = b.buffer(rows * width), y = b.buffer(rows * width);
  b.begin("softmax", rows, width);
  const View view{{rows, width}, {width, 1}, 0, {}};
  const int v = b.load(x, view, Level::inner);
  const int e = b.map(Op::exp, b.map(Op::sub, v, b.reduce(Reduction::max, v)));
  b.store(b.map(Op::div, e, b.reduce(Reduction::sum, e)), y, view);
  b.end();
  report(fmt::format("softmax {} x {}", rows, width), b.milliseconds(), 8.0 * rows * width);
}

void sums() {
  for (const auto& [outer, inner, columns] : {std::tuple<Extent, Extent, bool>{1, 16 << 20, false},
                                              {512, 1024, true},
                                              {128, 1024, true},
                                              {1024, 512, false}}) {
    Bench b;
    const Operand x = b.buffer(outer * inner), y = b.buffer(outer);
    b.begin("sum", outer, inner);
    const View view = columns ? View{{outer, inner}, {1, outer}, 0, {}} : View{{outer, inner}, {inner, 1}, 0, {}};
    b.store(b.reduce(Reduction::sum, b.load(x, view, Level::inner)), y, contiguous(outer));
    b.end();
    report(columns ? fmt::format("sum of {} rows of {}", inner, outer) : fmt::format("sums of {} x {}", outer, inner),
           b.milliseconds(), 4.0 * outer * inner);
  }
}

void transpose() {
  const Extent n = 1024, m = 1024;
  Bench b;
  const Operand x = b.buffer(n * m), y = b.buffer(n * m);
  b.begin("transpose", n * m);
  b.store(b.load(x, {{n, m}, {1, n}, 0, {}}), y, contiguous(n * m));
  b.end();
  report("transposed copy 1024 x 1024", b.milliseconds(), 8.0 * n * m);
}

void attention(Extent batch, Extent heads, Extent length, Extent width) {
  for (const bool backward : {false, true}) {
    Bench b;
    kernel::AttentionKernel k;
    k.name = "attention";
    k.batch = batch, k.heads = k.kv_heads = heads, k.queries = k.keys = length, k.width = width;
    k.scale = 1 / std::sqrt(static_cast<double>(width));
    k.backward = backward;
    const auto tensor = [&] {
      kernel::AttentionKernel::Tensor t;
      t.operand = b.buffer(batch * length * heads * width);
      t.batch_stride = length * heads * width, t.head_stride = width, t.row_stride = heads * width;
      return t;
    };
    k.q = tensor(), k.k = tensor(), k.v = tensor(), k.o = tensor();
    k.logsumexp = b.buffer(batch * heads * length, 4, 5);
    if (backward) k.d_o = tensor(), k.d_q = tensor(), k.d_k = tensor(), k.d_v = tensor();
    b.add_kernel(k);
    const double t = b.milliseconds();
    const double flops = (backward ? 10.0 : 4.0) * static_cast<double>(batch * heads * length * length * width) / 2;
    report(
        fmt::format("attention {} {} x {} x {} x {}", backward ? "backward" : "forward", batch, heads, length, width),
        t, 4.0 * (backward ? 8 : 4) * static_cast<double>(batch * length * heads * width),
        fmt::format("{:.1f} GFLOP/s", flops / t * 1e-6));
  }
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  using namespace weft;
  fmt::print("{}\n", cpu::make_cpu_backend()->describe().hardware);
  chain_of_six();
  if (argc > 1 && std::string_view(argv[1]) == "chain") return 0;
  adamw(800'000);
  adamw(10'000'000);
  const int threads = thread_count();
  set_thread_count(1);
  fmt::print("one thread:\n");
  gelu(false);
  gelu(true);
  for (const Op op : {Op::neg, Op::exp, Op::log, Op::tanh, Op::erf, Op::sin, Op::rsqrt}) unary(op);
  layer_norm(1024, 128);
  layer_norm_gradient(1024, 128);
  softmax(4096, 64);
  set_thread_count(threads);
  fmt::print("{} threads:\n", threads);
  layer_norm(1024, 128);
  layer_norm(16384, 384);
  layer_norm_gradient(1024, 128);
  softmax(4096, 64);
  softmax(1024, 1024);
  softmax(64, 50257);
  softmax(1, 50257);
  sums();
  transpose();
  attention(16, 4, 64, 32);
  attention(64, 6, 256, 64);
}
