// f32 matrix products, Weft beside oneDNN and OpenBLAS on the same threads: GFLOP/s, and the ratio to the faster peer.
//
//   bench_gemm [square|step|narrow] [--rounds N] [--size N] [--bf16]
//
// `square` are cubes from 256 to 4096, `step` the products of a training step of the `small` GPT. The three take turns;
// each turn waits until the threads of the one before have gone to sleep, and counts its fastest call. With `--bf16` the
// operands are bf16 and the sums f32; OpenBLAS has no such product here.
//
// `narrow` are products of f16, bf16 and int4 that read these operands as they are, beside the same products with kernels
// that cast the operands to f32 first: milliseconds, and the ratio.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/backend.hpp"
#include "backend/cpu/gemm.hpp"
#include "backend/cpu/isa.hpp"
#include "backend/cpu/loop/tile.hpp"
#include "base/threads.hpp"
#include "compile/compile.hpp"
#include "figure.hpp"
#include "peers.hpp"
#include "tensor/element.hpp"

#ifdef WEFT_HAS_OPENBLAS
#include <cblas.h>
#endif
#ifdef WEFT_HAS_DNNL
#include <dnnl.h>
#endif

namespace {

using std::int64_t;
using Clock = std::chrono::steady_clock;

struct Shape {
  const char* what;
  const char* form;  // n or t for each source
  int64_t batch, m, n, k;
  bool a_transposed() const { return form[0] == 't'; }
  bool b_transposed() const { return form[1] == 't'; }
  int64_t lda() const { return a_transposed() ? m : k; }
  int64_t ldb() const { return b_transposed() ? k : n; }
  double flops() const {
    return 2.0 * static_cast<double>(batch) * static_cast<double>(m * n) * static_cast<double>(k);
  }
};

constexpr int64_t kRows = 1024;  // batch 16, context 64
const Shape kStep[] = {
    {"qkv", "nn", 1, kRows, 384, 128},
    {"projection", "nn", 1, kRows, 128, 128},
    {"mlp up", "nn", 1, kRows, 512, 128},
    {"mlp down", "nn", 1, kRows, 128, 512},
    {"logits", "nn", 1, kRows, 83, 128},
    {"qkv, weight [n, k]", "nt", 1, kRows, 384, 128},
    {"d x of qkv", "nt", 1, kRows, 128, 384},
    {"d x of projection", "nt", 1, kRows, 128, 128},
    {"d x of mlp up", "nt", 1, kRows, 128, 512},
    {"d x of mlp down", "nt", 1, kRows, 512, 128},
    {"d x of logits", "nt", 1, kRows, 128, 83},
    {"d w of qkv", "tn", 1, 128, 384, kRows},
    {"d w of projection", "tn", 1, 128, 128, kRows},
    {"d w of mlp up", "tn", 1, 128, 512, kRows},
    {"d w of mlp down", "tn", 1, 512, 128, kRows},
    {"d w of logits", "tn", 1, 128, 83, kRows},
    {"d w, 16384 rows", "tn", 1, 128, 128, 16384},
    {"queries x keys", "nt", 64, 64, 64, 32},
    {"weights x values", "nn", 64, 64, 32, 64},
    {"d of keys", "tn", 64, 64, 32, 64},
};

/// Elements from a whole page on, as all of Weft's buffers begin at a line of the cache.
template <class T>
struct Matrix {
  explicit Matrix(int64_t count)
      : size(count),
        data(static_cast<T*>(std::aligned_alloc(4096, (count * sizeof(T) + 4095) / 4096 * 4096)), std::free) {
    std::fill_n(data.get(), count, T{});
  }
  int64_t size;
  std::unique_ptr<T, void (*)(void*)> data;
};

struct Operands {
  Matrix<float> a, b, c;
  Matrix<std::uint16_t> half_a, half_b;  // a and b as bf16, if the operands are of it
  bool is_bf16;

  Operands(const Shape& s, bool bf16)
      : a(s.batch * s.m * s.k),
        b(s.batch * s.k * s.n),
        c(s.batch * s.m * s.n),
        half_a(bf16 ? a.size : 0),
        half_b(bf16 ? b.size : 0),
        is_bf16(bf16) {
    std::mt19937 random(1);
    const auto fill = [&](Matrix<float>& wide, Matrix<std::uint16_t>& half) {
      for (int64_t i = 0; i < wide.size; ++i) {
        float& x = wide.data.get()[i];
        x = std::uniform_real_distribution<float>(-1, 1)(random);
        if (!is_bf16) continue;
        weft::write_element(weft::DType::bf16, x, half.data.get(), static_cast<std::size_t>(i));
        x = static_cast<float>(weft::read_element(weft::DType::bf16, half.data.get(), static_cast<std::size_t>(i)));
      }
    };
    fill(a, half_a);
    fill(b, half_b);
  }
};

using Call = std::function<void()>;

Call weft_call(const Shape& s, Operands& o) {
  weft::cpu::GemmArgs<float> args{.batch = s.batch, .m = s.m, .n = s.n, .k = s.k};
  args.a = {.data = o.a.data.get(),
            .row = s.a_transposed() ? 1 : s.k,
            .column = s.a_transposed() ? s.m : 1,
            .batch = {.stride = s.m * s.k}};
  args.b = {.data = o.b.data.get(),
            .row = s.b_transposed() ? 1 : s.n,
            .column = s.b_transposed() ? s.k : 1,
            .batch = {.stride = s.k * s.n}};
  args.c = {.data = o.c.data.get(), .row = s.n, .batch = {.stride = s.m * s.n}};
  if (o.is_bf16) {
    const weft::cpu::WidenFunction widen = weft::cpu::widen_function(weft::DType::bf16);
    args.a.narrow = {widen, o.half_a.data.get(), 0, true};
    args.b.narrow = {widen, o.half_b.data.get(), 0, true};
  }
  return [args] { weft::cpu::gemm(args); };
}

std::string openblas_name() {
#ifdef WEFT_HAS_OPENBLAS
  const std::string text = openblas_get_config();  // "OpenBLAS 0.3.21 DYNAMIC_ARCH ..."
  return text.substr(0, text.find(' ', text.find(' ') + 1));
#else
  return "";
#endif
}

#ifdef WEFT_HAS_DNNL
/// One f32 product through dnnl_sgemm, others through the matmul primitive.
Call dnnl_call(const Shape& s, Operands& o) {
  if (s.batch == 1 && !o.is_bf16)
    return [s, &o] {
      weft::figures::require(dnnl_sgemm(s.a_transposed() ? 'T' : 'N', s.b_transposed() ? 'T' : 'N', s.m, s.n, s.k, 1,
                                        o.a.data.get(), s.lda(), o.b.data.get(), s.ldb(), 0, o.c.data.get(), s.n));
    };
  const dnnl_data_type_t type = o.is_bf16 ? dnnl_bf16 : dnnl_f32;
  void* const a = o.is_bf16 ? static_cast<void*>(o.half_a.data.get()) : o.a.data.get();
  void* const b = o.is_bf16 ? static_cast<void*>(o.half_b.data.get()) : o.b.data.get();
  return weft::figures::dnnl_product({s.batch, s.m, s.k, s.a_transposed(), type, a},
                                     {s.batch, s.k, s.n, s.b_transposed(), type, b},
                                     {s.batch, s.m, s.n, false, dnnl_f32, o.c.data.get()});
}
#endif

#ifdef WEFT_HAS_OPENBLAS
Call openblas_call(const Shape& s, Operands& o) {
  return [s, &o] {
    for (int64_t batch = 0; batch < s.batch; ++batch)
      cblas_sgemm(CblasRowMajor, s.a_transposed() ? CblasTrans : CblasNoTrans,
                  s.b_transposed() ? CblasTrans : CblasNoTrans, s.m, s.n, s.k, 1, o.a.data.get() + batch * s.m * s.k,
                  s.lda(), o.b.data.get() + batch * s.k * s.n, s.ldb(), 0, o.c.data.get() + batch * s.m * s.n, s.n);
  };
}
#endif

double best_seconds(const Call& call) {
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  call();
  double best = 1e30, spent = 0;
  for (int times = 0; times < 3 || (spent < 0.03 && times < 200); ++times) {
    const auto start = Clock::now();
    call();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

void measure(const Shape& s, int rounds, bool bf16) {
  Operands o(s, bf16);

  // Each contestant, and whether its result agrees with Weft's.
  std::vector<Call> calls{weft_call(s, o), nullptr, nullptr};
#ifdef WEFT_HAS_DNNL
  calls[1] = dnnl_call(s, o);
#endif
#ifdef WEFT_HAS_OPENBLAS
  if (!bf16) calls[2] = openblas_call(s, o);
#endif
  calls[0]();
  weft::figures::spread_openmp_threads();
  const std::vector<float> ours(o.c.data.get(), o.c.data.get() + o.c.size);
  for (std::size_t peer = 1; peer < calls.size(); ++peer) {
    if (!calls[peer]) continue;
    calls[peer]();
    for (std::size_t i = 0; i < ours.size(); ++i)
      if (std::abs(ours[i] - o.c.data.get()[i]) > 1e-3f * static_cast<float>(s.k)) {
        fmt::print(stderr, "{}: element {} is {} and not {}\n", s.what, i, ours[i], o.c.data.get()[i]);
        std::exit(1);
      }
  }

  double best[3] = {1e30, 1e30, 1e30};
  for (int round = 0; round < rounds; ++round)
    for (std::size_t who = 0; who < calls.size(); ++who)
      if (calls[who]) best[who] = std::min(best[who], best_seconds(calls[who]));

  const auto rate = [&](int who) { return calls[who] ? fmt::format("{:.1f}", s.flops() / best[who] * 1e-9) : "-"; };
  const double peer = std::min(best[1], best[2]);
  const std::string size = s.batch == 1 ? fmt::format("{} x {} x {}", s.m, s.n, s.k)
                                        : fmt::format("{} of {} x {} x {}", s.batch, s.m, s.n, s.k);
  fmt::print("{:<20} {:<4} {:<20} {:>9} {:>9} {:>9} {:>7}\n", s.what, s.form, size, rate(0), rate(1), rate(2),
             peer < 1e30 ? fmt::format("{:.2f}", peer / best[0]) : "-");
  std::fflush(stdout);
  const std::string peers[] = {"", weft::figures::onednn_name(), openblas_name()};
  for (std::size_t who = 1; who < calls.size(); ++who)
    if (calls[who])
      weft::figures::keep({bf16 ? "bf16 matrix products" : "f32 matrix products",
                           fmt::format("{} {} {}", s.what, s.form, size), "GFLOP/s", s.flops() / best[0] * 1e-9,
                           peers[who], s.flops() / best[who] * 1e-9});
}

struct NarrowShape {
  const char* form;
  int64_t m, n, k;
  weft::DType a, b;
};

constexpr weft::DType kF32 = weft::DType::f32, kF16 = weft::DType::f16, kBf16 = weft::DType::bf16,
                      kInt4 = weft::DType::int4;
const NarrowShape kNarrowShapes[] = {
    {"nn", 1, 4096, 4096, kF16, kF16},    {"nt", 1, 4096, 4096, kF16, kF16},     {"nn", 8, 4096, 4096, kF16, kF16},
    {"nt", 8, 4096, 4096, kF16, kF16},    {"nn", 1, 4096, 4096, kBf16, kBf16},   {"nt", 8, 4096, 4096, kBf16, kBf16},
    {"nn", 1, 4096, 4096, kF32, kInt4},   {"nt", 1, 4096, 4096, kF32, kInt4},    {"nn", 8, 4096, 4096, kF32, kInt4},
    {"nt", 8, 4096, 4096, kF32, kInt4},   {"nn", 64, 1024, 1024, kF16, kF16},    {"nt", 64, 1024, 1024, kF16, kF16},
    {"nn", 512, 1024, 1024, kF16, kF16},  {"nt", 512, 1024, 1024, kBf16, kBf16}, {"tn", 512, 1024, 1024, kF16, kF16},
    {"nt", 512, 1024, 1024, kF32, kInt4}, {"nn", 1024, 512, 128, kF16, kF16},    {"tn", 128, 512, 1024, kF16, kF16},
    {"nn", 2048, 2048, 2048, kF16, kF16}, {"nt", 2048, 2048, 2048, kF16, kF16},  {"tn", 2048, 2048, 2048, kBf16, kBf16},
    {"nn", 2048, 2048, 2048, kF32, kInt4}};

/// The product as a plan of the CPU backend, with its buffers.
struct NarrowProduct {
  std::vector<weft::backend::BufferPtr> buffers;
  std::unique_ptr<weft::backend::Program> program;

  NarrowProduct(weft::backend::Backend& cpu, const NarrowShape& s, const std::vector<std::string>& disabled) {
    using namespace weft;
    const auto input = [&](DType type, const weft::Shape& shape, Extent ordinal) {
      return graph::make_node({.kind = graph::Kind::input, .type = type, .shape = shape, .ints = {ordinal}});
    };
    const auto operand = [](const graph::NodeRef& leaf, bool turned) {
      return turned ? graph::permute(graph::cast(leaf, kF32), {0, 2, 1}) : graph::cast(leaf, kF32);
    };
    const bool a_turned = s.form[0] == 't', b_turned = s.form[1] == 't';
    const auto a = input(s.a, a_turned ? weft::Shape{1, s.k, s.m} : weft::Shape{1, s.m, s.k}, 0);
    const auto b = input(s.b, b_turned ? weft::Shape{1, s.n, s.k} : weft::Shape{1, s.k, s.n}, 1);
    compiler::Target target;
    static_cast<compiler::Capabilities&>(target) = cpu.describe();
    target.storage_bits = [&](DType type) { return cpu.storage_bits(type); };
    const auto compiled = compiler::compile({{graph::matmul(operand(a, a_turned), operand(b, b_turned))}, {nullptr}},
                                            target, {.disabled_rewrites = disabled});
    for (const graph::NodeRef& leaf : compiled.leaves) {
      std::mt19937 random(static_cast<unsigned>(leaf->ints[0]));
      const auto count = static_cast<std::size_t>(leaf->shape.numel());
      std::vector<std::byte> host(bytes_of(leaf->type, count));
      for (std::size_t i = 0; i < count; ++i)
        write_element(leaf->type, std::uniform_real_distribution<double>(-2, 2)(random), host.data(), i);
      buffers.push_back(cpu.allocate(host.size(), "operand"));
      cpu.upload(*buffers.back(), 0, leaf->shape.numel(), leaf->type, host.data());
    }
    buffers.push_back(cpu.allocate(static_cast<std::size_t>(s.m * s.n * 4), "result"));
    program = cpu.compile(compiled.plan);
  }
  std::vector<float> result(weft::backend::Backend& cpu, int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    cpu.download(*buffers.back(), 0, count, kF32, values.data());
    return values;
  }
};

void measure_narrow(const NarrowShape& s, int rounds) {
  const auto cpu = weft::cpu::make_cpu_backend();
  NarrowProduct narrow(*cpu, s, {}), cast_first(*cpu, s, {"narrow_operands"});
  const Call calls[] = {[&] { narrow.program->run(narrow.buffers); },
                        [&] { cast_first.program->run(cast_first.buffers); }};
  for (const Call& call : calls) call();
  // The processor's instructions for pairs of bf16 sum in another order.
  const float tolerance = s.a == kBf16 && s.b == kBf16 ? 1e-5f * static_cast<float>(s.k) : 0;
  const std::vector<float> left = narrow.result(*cpu, s.m * s.n), right = cast_first.result(*cpu, s.m * s.n);
  for (std::size_t i = 0; i < left.size(); ++i)
    if (!(std::abs(left[i] - right[i]) <= tolerance)) {
      fmt::print(stderr, "{} {} {} {}: the results differ\n", s.form, s.m, s.n, s.k);
      std::exit(1);
    }
  double best[2] = {1e30, 1e30};
  for (int round = 0; round < rounds; ++round)
    for (std::size_t who = 0; who < 2; ++who) best[who] = std::min(best[who], best_seconds(calls[who]));
  fmt::print("{:<4} {:<20} {:<10} {:<10} {:>9.3f} {:>9.3f} {:>7.2f}\n", s.form,
             fmt::format("{} x {} x {}", s.m, s.n, s.k), weft::name_of(s.a), weft::name_of(s.b), best[0] * 1e3,
             best[1] * 1e3, best[1] / best[0]);
  std::fflush(stdout);
  weft::figures::keep(
      {"products that read narrow operands",
       fmt::format("{} {} x {} x {}, {} by {}", s.form, s.m, s.n, s.k, weft::name_of(s.a), weft::name_of(s.b)), "ms",
       best[0] * 1e3, "Weft with casts to f32 first", best[1] * 1e3});
}

}  // namespace

int main(int argc, char** argv) {
  // The peers read their thread counts while they load, so this process starts again with them set.
  const std::string threads = std::to_string(weft::thread_count());
  if (const char* set = std::getenv("OMP_NUM_THREADS"); set == nullptr || threads != set) {
    setenv("OMP_NUM_THREADS", threads.c_str(), 1);
    setenv("OPENBLAS_NUM_THREADS", threads.c_str(), 1);
    execv("/proc/self/exe", argv);
  }
  int rounds = 5;
  std::string set;
  int64_t only = 0;
  bool bf16 = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (std::strcmp(argv[i], "--size") == 0 && i + 1 < argc) {
      only = std::atoll(argv[++i]);
    } else if (std::strcmp(argv[i], "--bf16") == 0) {
      bf16 = true;
    } else if (std::strcmp(argv[i], "square") == 0 || std::strcmp(argv[i], "step") == 0 ||
               std::strcmp(argv[i], "narrow") == 0) {
      set = argv[i];
    } else {
      fmt::print(stderr, "usage: bench_gemm [square|step|narrow] [--rounds N] [--size N] [--bf16]\n");
      return 2;
    }
  }
  if (set == "narrow") {
    fmt::print("products of narrow operands, milliseconds, {} threads, {}, best of {} turns\n", threads,
               weft::cpu::name(weft::cpu::isa()), rounds);
    fmt::print("{:<4} {:<20} {:<10} {:<10} {:>9} {:>9} {:>7}\n", "form", "m x n x k", "A", "B", "narrow", "cast",
               "ratio");
    for (const NarrowShape& s : kNarrowShapes)
      if (only == 0 || s.k == only) measure_narrow(s, rounds);
    return 0;
  }
#ifndef WEFT_HAS_DNNL
  fmt::print("oneDNN was not found when this was built\n");
#endif
#ifndef WEFT_HAS_OPENBLAS
  fmt::print("OpenBLAS was not found when this was built\n");
#endif
  fmt::print("{} matrix products, GFLOP/s, {} threads, {}, best of {} turns\n", bf16 ? "bf16" : "f32", threads,
             weft::cpu::name(weft::cpu::isa()), rounds);
  fmt::print("{:<20} {:<4} {:<20} {:>9} {:>9} {:>9} {:>7}\n", "", "form", "m x n x k", "Weft", "oneDNN", "OpenBLAS",
             "ratio");
  if (set != "square")
    for (const Shape& s : kStep) measure(s, rounds, bf16);
  if (set != "step")
    for (const int64_t size : {256, 512, 1024, 2048, 4096})
      if (only == 0 || size == only)
        for (const char* form : {"nn", "nt", "tn"}) measure({"square", form, 1, size, size, size}, rounds, bf16);
}
