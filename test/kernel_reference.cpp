#include "kernel_reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "base/philox.hpp"
#include "reference/packed.hpp"
#include "reference/routines.hpp"

namespace weft::reference {

std::uint32_t philox(std::uint32_t seed, std::uint32_t stream, std::uint32_t index) {
  std::uint32_t c[4] = {index, 0, 0, 0};
  std::uint32_t key[2] = {seed, stream};
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    const std::uint32_t next[4] = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
                                   static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1],
                                   static_cast<std::uint32_t>(p0)};
    std::copy(next, next + 4, c);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return c[0];
}

namespace {

/// Integer division as WGSL defines it where C++ does not: by zero it gives the dividend, and the remainder is 0.
std::int64_t integer_div(std::int64_t a, std::int64_t b) { return b == 0 ? a : a / b; }
std::int64_t integer_rem(std::int64_t a, std::int64_t b) { return b == 0 ? 0 : a % b; }
/// Wraps; a negative power of an integer other than 1 and -1 is 0.
std::int64_t integer_pow(std::int64_t a, std::int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
  std::uint32_t result = 1, base = static_cast<std::uint32_t>(a);
  for (; b > 0; b >>= 1, base *= base)
    if (b & 1) result *= base;
  return result;
}

double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : a < b ? b : a; }
double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : b < a ? b : a; }

}  // namespace

double apply(scalar::Op op, DType type, double a, DType ta, double b, DType tb, double c, DType tc) {
  using scalar::Op;
  using I = std::int64_t;
  DType meet = type;
  switch (op) {
    case Op::eq:
    case Op::ne:
    case Op::lt:
    case Op::le:
    case Op::gt:
    case Op::ge: meet = promote(ta, tb); break;
    case Op::logical_not:
    case Op::logical_and:
    case Op::logical_or: meet = DType::boolean; break;
    case Op::is_nan:
    case Op::cast: meet = ta; break;
    default: break;
  }
  if (op == Op::select) return a != 0 ? cast(b, tb, type) : cast(c, tc, type);
  a = cast(a, ta, meet);
  if (scalar::arity(op) > 1) b = cast(b, tb, meet);
  if (scalar::arity(op) > 2) c = cast(c, tc, meet);
  const bool integral = !is_float(meet);
  const I ia = integral ? static_cast<I>(a) : 0, ib = integral ? static_cast<I>(b) : 0;
  const auto u = [](double x) { return static_cast<std::uint32_t>(static_cast<I>(x)); };
  double r = 0;
  switch (op) {
    case Op::neg: r = integral ? static_cast<double>(-ia) : -a; break;
    case Op::abs: r = std::fabs(a); break;
    case Op::sign: r = std::isnan(a) ? a : a > 0 ? 1 : a < 0 ? -1 : a; break;
    case Op::floor: r = std::floor(a); break;
    case Op::ceil: r = std::ceil(a); break;
    case Op::round: r = round_half_even(a); break;
    case Op::trunc: r = std::trunc(a); break;
    case Op::sqrt: r = std::sqrt(a); break;
    case Op::rsqrt: r = 1 / std::sqrt(a); break;
    case Op::exp: r = std::exp(a); break;
    case Op::exp2: r = std::exp2(a); break;
    case Op::expm1: r = std::expm1(a); break;
    case Op::log: r = std::log(a); break;
    case Op::log2: r = std::log2(a); break;
    case Op::log10: r = std::log10(a); break;
    case Op::log1p: r = std::log1p(a); break;
    case Op::sin: r = std::sin(a); break;
    case Op::cos: r = std::cos(a); break;
    case Op::tan: r = std::tan(a); break;
    case Op::asin: r = std::asin(a); break;
    case Op::acos: r = std::acos(a); break;
    case Op::atan: r = std::atan(a); break;
    case Op::sinh: r = std::sinh(a); break;
    case Op::cosh: r = std::cosh(a); break;
    case Op::tanh: r = std::tanh(a); break;
    case Op::asinh: r = std::asinh(a); break;
    case Op::acosh: r = std::acosh(a); break;
    case Op::atanh: r = std::atanh(a); break;
    case Op::erf: r = std::erf(a); break;
    case Op::is_nan: return std::isnan(a);
    case Op::logical_not: return a == 0;
    case Op::bit_not: r = static_cast<double>(meet == DType::boolean ? I{a == 0} : ~ia); break;
    case Op::cast: return cast(a, ta, type);
    case Op::add: r = a + b; break;
    case Op::sub: r = a - b; break;
    case Op::mul:
      // Of two factors below 2^32 the low 32 bits; longer types are tested with small numbers.
      r = integral && element(meet).bits <= 32
              ? static_cast<double>(static_cast<std::uint32_t>(ia) * static_cast<std::uint32_t>(ib))
              : a * b;
      break;
    case Op::div: r = integral ? static_cast<double>(integer_div(ia, ib)) : a / b; break;
    case Op::rem: r = integral ? static_cast<double>(integer_rem(ia, ib)) : std::fmod(a, b); break;
    case Op::pow: r = integral ? static_cast<double>(integer_pow(ia, ib)) : std::pow(a, b); break;
    case Op::atan2: r = std::atan2(a, b); break;
    case Op::min: r = minimum(a, b); break;
    case Op::max: r = maximum(a, b); break;
    case Op::copysign: r = std::copysign(a, b); break;
    case Op::eq: return a == b;
    case Op::ne: return a != b;
    case Op::lt: return a < b;
    case Op::le: return a <= b;
    case Op::gt: return a > b;
    case Op::ge: return a >= b;
    case Op::logical_and: return a != 0 && b != 0;
    case Op::logical_or: return a != 0 || b != 0;
    case Op::bit_and: r = static_cast<double>(ia & ib); break;
    case Op::bit_or: r = static_cast<double>(ia | ib); break;
    case Op::bit_xor: r = static_cast<double>(ia ^ ib); break;
    case Op::shl: r = std::ldexp(a, static_cast<int>(u(b) & (element(type).bits == 64 ? 63 : 31))); break;
    case Op::shr: r = std::floor(std::ldexp(a, -static_cast<int>(u(b) & (element(type).bits == 64 ? 63 : 31)))); break;
    case Op::philox: r = philox(u(a), u(b), u(c)); break;
    case Op::input:
    case Op::constant:
    case Op::select: throw std::logic_error("not an operation of a map step");
  }
  return to_type(r, type);
}

namespace {

/// The value a reduction of nothing gives.
double empty_value(scalar::Reduction reduction, DType type) {
  const double inf = std::numeric_limits<double>::infinity();
  switch (reduction) {
    case scalar::Reduction::sum: return 0;
    case scalar::Reduction::prod: return 1;
    case scalar::Reduction::max: return is_float(type) ? -inf : element(type).lowest;
    case scalar::Reduction::min: return is_float(type) ? inf : element(type).highest;
    default: return 0;
  }
}

/// Reduces in double; sums and products of i32 and u32 wrap, of bool they are or and and.
double reduce(scalar::Reduction reduction, DType from, DType type, const Values& values) {
  using scalar::Reduction;
  double r = empty_value(reduction, from);
  double extreme = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double x = values[i];
    switch (reduction) {
      case Reduction::sum: r = is_float(from) ? r + x : to_type(r + x, from); break;
      case Reduction::prod: r = is_float(from) ? r * x : apply(scalar::Op::mul, from, r, from, x, from); break;
      case Reduction::max: r = maximum(r, x); break;
      case Reduction::min: r = minimum(r, x); break;
      case Reduction::argmax:
      case Reduction::argmin: {
        const bool better = reduction == Reduction::argmax ? x > extreme : x < extreme;
        if (i == 0 || (!std::isnan(extreme) && (std::isnan(x) || better))) {
          extreme = x;
          r = static_cast<double>(i);
        }
      }
    }
  }
  return to_type(r, type);
}

/// Value of step `s` at (outer, inner). `accumulator` gives the matrix product's element in epilogues.
struct LoopEvaluator {
  const kernel::LoopKernel& kernel;
  const std::vector<Values>& buffers;
  const Values* accumulator = nullptr;
  std::vector<std::vector<double>>
      outer_values;  // one value a step for this outer index; inner steps: one an inner index

  void evaluate(Extent outer) {
    outer_values.assign(kernel.steps.size(), {});
    for (std::size_t s = 0; s < kernel.steps.size(); ++s) {
      const kernel::Step& step = kernel.steps[s];
      const Extent n = step.level == kernel::Level::outer ? 1 : kernel.inner;
      auto& out = outer_values[s];
      out.resize(static_cast<std::size_t>(n));
      for (Extent j = 0; j < n; ++j) out[static_cast<std::size_t>(j)] = value(step, outer, j);
    }
  }
  double at(int step, Extent inner) const {
    const auto& values = outer_values[static_cast<std::size_t>(step)];
    return kernel.steps[static_cast<std::size_t>(step)].level == kernel::Level::outer
               ? values[0]
               : values[static_cast<std::size_t>(inner)];
  }
  DType type(int step) const { return kernel.steps[static_cast<std::size_t>(step)].type; }
  double value(const kernel::Step& step, Extent outer, Extent inner) const {
    const Extent linear = step.level == kernel::Level::outer ? outer : outer * kernel.inner + inner;
    switch (step.kind) {
      case kernel::StepKind::constant: return cast(step.value, DType::f64, step.type);
      case kernel::StepKind::load: {
        const kernel::Operand& operand = kernel.inputs[static_cast<std::size_t>(step.operand)];
        const Extent where = locate(step.view, linear);
        return where < 0 ? 0 : cast(read(operand, where, buffers), operand.type, step.type);
      }
      case kernel::StepKind::gather: {
        const kernel::Operand& operand = kernel.inputs[static_cast<std::size_t>(step.operand)];
        const Extent where = locate(step.view, linear);
        const double index = at(step.a, inner);
        if (where < 0 || index < 0 || index >= static_cast<double>(step.axis_extent)) return 0;
        return cast(read(operand, where + static_cast<Extent>(index) * step.axis_stride, buffers), operand.type,
                    step.type);
      }
      case kernel::StepKind::index: {
        const Extent where = locate(step.view, linear);
        return where < 0 ? 0 : to_type(static_cast<double>(where), step.type);
      }
      case kernel::StepKind::map: {
        const auto operand = [&](int s) { return s < 0 ? 0.0 : at(s, inner); };
        const auto operand_type = [&](int s) { return s < 0 ? DType::f32 : type(s); };
        return apply(step.op, step.type, operand(step.a), operand_type(step.a), operand(step.b), operand_type(step.b),
                     operand(step.c), operand_type(step.c));
      }
      case kernel::StepKind::reduce: {
        Values all(static_cast<std::size_t>(kernel.inner));
        for (Extent j = 0; j < kernel.inner; ++j) all[static_cast<std::size_t>(j)] = at(step.a, j);
        return reduce(step.reduction, type(step.a), step.type, all);
      }
      case kernel::StepKind::accumulator: return to_type((*accumulator)[static_cast<std::size_t>(linear)], step.type);
    }
    return 0;
  }
};

}  // namespace

void run(const kernel::LoopKernel& kernel, std::vector<Values>& buffers, const Values* accumulator = nullptr) {
  LoopEvaluator evaluator{kernel, buffers, accumulator, {}};
  std::vector<Values> written = buffers;  // outputs appear only when all is read
  for (Extent o = 0; o < kernel.outer; ++o) {
    evaluator.evaluate(o);
    for (const kernel::Store& store : kernel.stores) {
      const kernel::Operand& operand = kernel.outputs[static_cast<std::size_t>(store.output)];
      const bool outer_level = kernel.steps[static_cast<std::size_t>(store.value)].level == kernel::Level::outer;
      for (Extent j = 0; j < (outer_level ? 1 : kernel.inner); ++j) {
        const Extent where = locate(store.view, outer_level ? o : o * kernel.inner + j);
        if (where >= 0)
          write(operand, where, cast(evaluator.at(store.value, j), evaluator.type(store.value), operand.type), written);
      }
    }
  }
  buffers = std::move(written);
}

Extent locate(const kernel::MatrixView::Sum& sum, Extent b, Extent i, Extent j) {
  const auto part = [](const kernel::View& view, Extent at) {
    return at == 0 ? view.offset : locate({view.extents, view.strides, 0, {}}, at) + view.offset;
  };
  return part(sum.batch, b) + part(sum.rows, i) + part(sum.columns, j);
}
double read(const kernel::Operand& operand, const kernel::MatrixView& view, Extent b, Extent i, Extent j,
            const std::vector<Values>& buffers) {
  for (const kernel::MatrixView::Edge& edge : view.edges) {
    const Extent value = locate(edge.value, b, i, j);
    if (value < 0) throw std::logic_error("the value of an edge is negative");
    if (value < edge.lo || value >= edge.hi) return 0;
  }
  return read(operand, locate(view.at, b, i, j), buffers);
}

void run(const kernel::MatmulKernel& kernel, std::vector<Values>& buffers) {
  Values product(static_cast<std::size_t>(kernel.batch * kernel.m * kernel.n));
  const DType type = kernel.type();
  // Each element is read through its view once: that takes far longer than a multiplication.
  const auto matrix = [&](const kernel::Operand& operand, const kernel::MatrixView& view, Extent b, Extent rows,
                          Extent columns) {
    Values values;
    values.reserve(static_cast<std::size_t>(rows * columns));
    for (Extent i = 0; i < rows; ++i)
      for (Extent j = 0; j < columns; ++j) values.push_back(read(operand, view, b, i, j, buffers));
    return values;
  };
  for (Extent b = 0; b < kernel.batch; ++b) {
    const Values left = matrix(kernel.a, kernel.a_view, b, kernel.m, kernel.k),
                 right = matrix(kernel.b, kernel.b_view, b, kernel.k, kernel.n);
    for (Extent i = 0; i < kernel.m; ++i)
      for (Extent j = 0; j < kernel.n; ++j) {
        double sum = 0;
        for (Extent k = 0; k < kernel.k; ++k) {
          const double x = left[static_cast<std::size_t>(i * kernel.k + k)],
                       y = right[static_cast<std::size_t>(k * kernel.n + j)];
          sum = is_float(type) ? sum + x * y : to_type(sum + apply(scalar::Op::mul, type, x, type, y, type), type);
        }
        product[static_cast<std::size_t>((b * kernel.m + i) * kernel.n + j)] = to_type(sum, type);
      }
  }
  run(kernel.epilogue, buffers, &product);
}

/// The weights are blocks as files have them (reference/packed.hpp).
void run(const kernel::PackedMatmulKernel& kernel, std::vector<Values>& buffers) {
  Values rows, product(static_cast<std::size_t>(kernel.m * kernel.n), 0.0);
  if (kernel.rows) {
    kernel::LoopKernel stored = *kernel.rows;
    const int own = static_cast<int>(buffers.size());
    stored.outputs = {{own, DType::f32, 0, kernel.m * kernel.k}};
    std::vector<Values> with_rows = buffers;
    with_rows.emplace_back(static_cast<std::size_t>(kernel.m * kernel.k));
    run(stored, with_rows);
    rows = with_rows.back();
  }
  const auto a = [&](Extent i, Extent k) {
    return kernel.rows ? rows[static_cast<std::size_t>(i * kernel.k + k)]
                       : read(kernel.a, i * kernel.a_row + k, buffers);
  };
  const Values weights = unpacked(kernel.block_type, kernel.rows_of_weights(), kernel.k, kernel.weights, buffers);
  for (Extent i = 0; i < kernel.m; ++i) {
    const Extent expert = kernel.experts ? static_cast<Extent>(read(kernel.experts->of_row, i, buffers)) : 0;
    if (kernel.experts && (expert < 0 || expert >= kernel.experts->count)) continue;
    const Extent row = kernel.experts ? i / kernel.experts->share : i;
    for (Extent j = 0; j < kernel.n; ++j) {
      double sum = 0;
      for (Extent k = 0; k < kernel.k; ++k)
        sum += a(row, k) * weights[static_cast<std::size_t>((expert * kernel.n + j) * kernel.k + k)];
      product[static_cast<std::size_t>(i * kernel.n + j)] = to_type(sum, DType::f32);
    }
  }
  run(kernel.epilogue, buffers, &product);
}

void run(const kernel::ScatterAddKernel& kernel, std::vector<Values>& buffers) {
  Values out(static_cast<std::size_t>(kernel.rows * kernel.columns), 0.0);
  for (Extent i = 0; i < kernel.count; ++i) {
    const double row = read(kernel.indices, i, buffers);
    if (row < 0 || row >= static_cast<double>(kernel.rows)) continue;
    for (Extent c = 0; c < kernel.columns; ++c) {
      double& at = out[static_cast<std::size_t>(static_cast<Extent>(row) * kernel.columns + c)];
      at += read(kernel.updates, i * kernel.columns + c, buffers);
      if (!is_float(kernel.out.type)) at = to_type(at, kernel.out.type);
    }
  }
  for (Extent i = 0; i < kernel.rows * kernel.columns; ++i)
    write(kernel.out, i, to_type(out[static_cast<std::size_t>(i)], kernel.out.type), buffers);
}

void run(const kernel::AttentionKernel& kernel, std::vector<Values>& buffers) {
  using Tensor = kernel::AttentionKernel::Tensor;
  const Extent queries = kernel.queries, keys = kernel.keys, width = kernel.width;
  const Extent members = kernel.heads / std::max<Extent>(kernel.kv_heads, 1);
  for (Extent b = 0; b < kernel.batch; ++b)
    for (Extent h = 0; h < kernel.heads; ++h) {
      const auto place = [&](const Tensor& t, Extent row, Extent channel) {
        const bool of_keys = &t == &kernel.k || &t == &kernel.v || &t == &kernel.d_k || &t == &kernel.d_v;
        return b * t.batch_stride + (of_keys ? h / members : h) * t.head_stride + row * t.row_stride + channel;
      };
      const auto get = [&](const Tensor& t, Extent row, Extent channel) {
        return read(t.operand, place(t, row, channel), buffers);
      };
      const auto put = [&](const Tensor& t, Extent row, Extent channel, double value) {
        write(t.operand, place(t, row, channel), value, buffers);
      };
      const auto bias = [&](Extent i, Extent j) {
        const auto& mask = *kernel.mask;
        return read(mask.operand,
                    b * mask.batch_stride + h * mask.head_stride + i * mask.row_stride + j * mask.key_stride, buffers);
      };
      const bool adds = kernel.mask && kernel.mask->operand.type != DType::boolean;
      const auto sees = [&](Extent i, Extent j) {
        const Extent at = i + kernel.shift;
        if (kernel.causal && j > at) return false;
        if (kernel.window > 0 && (j <= at - kernel.window || j >= at + kernel.window)) return false;
        if (kernel.mask && (adds ? bias(i, j) <= -1e30 : bias(i, j) == 0)) return false;
        if (!kernel.key_spans) return true;
        const auto end_of = [&](int which) { return read(*kernel.key_spans, (b * queries + i) * 2 + which, buffers); };
        return static_cast<double>(j) >= end_of(0) && static_cast<double>(j) < end_of(1);
      };
      // The factor of a share that may be dropped.
      const auto kept = [&](Extent i, Extent j) -> double {
        if (kernel.dropped == 0) return 1;
        const auto word = static_cast<std::uint32_t>(
            ((b * kernel.heads + h) * ((queries + 1) / 2) + i / 2) * ((keys + 1) / 2) + j / 2);
        const auto seed = [&](Extent e) { return static_cast<std::uint32_t>(read(*kernel.seed, e, buffers)); };
        const std::uint32_t byte =
            philox::block({seed(0), seed(1)}, {word, 0, 0, 0})[0] >> (i % 2 * 16 + j % 2 * 8) & 255;
        return byte < static_cast<std::uint32_t>(kernel.dropped) ? 0
                                                                 : 256.0 / static_cast<double>(256 - kernel.dropped);
      };
      if (kernel.backward && h % members == 0)
        for (Extent j = 0; j < keys; ++j)
          for (Extent c = 0; c < width; ++c)
            for (const Tensor* t : {&kernel.d_k, &kernel.d_v}) put(*t, j, c, 0);
      for (Extent i = 0; i < queries; ++i) {
        Values p(static_cast<std::size_t>(keys), 0.0);
        double top = -std::numeric_limits<double>::infinity(), total = 0;
        for (Extent j = 0; j < keys; ++j) {
          if (!sees(i, j)) continue;
          double dot = 0;
          for (Extent c = 0; c < width; ++c) dot += get(kernel.q, i, c) * get(kernel.k, j, c);
          p[static_cast<std::size_t>(j)] = dot * kernel.scale + (adds ? bias(i, j) : 0);
          top = std::max(top, p[static_cast<std::size_t>(j)]);
        }
        if (kernel.backward) {
          // What is given, not what the scores make: sinks are in it.
          top = read(kernel.logsumexp, (b * kernel.heads + h) * queries + i, buffers);
          total = std::isinf(top) && top < 0 ? 0 : 1;
        }
        double sum_of_row = 0;
        for (Extent j = 0; j < keys; ++j)
          if (sees(i, j)) sum_of_row += p[static_cast<std::size_t>(j)] = std::exp(p[static_cast<std::size_t>(j)] - top);
        if (!kernel.backward) total = sum_of_row;
        for (double& x : p) x = total == 0 ? 0 : x / total;  // a NaN reaches the whole row
        if (!kernel.backward) {
          for (Extent c = 0; c < width; ++c) {
            double sum = 0;
            for (Extent j = 0; j < keys; ++j)
              if (sees(i, j)) sum += p[static_cast<std::size_t>(j)] * kept(i, j) * get(kernel.v, j, c);
            put(kernel.o, i, c, to_type(sum, kernel.o.operand.type));
          }
          write(kernel.logsumexp, (b * kernel.heads + h) * queries + i,
                to_type(top + std::log(total), kernel.logsumexp.type), buffers);
          continue;
        }
        double delta = 0;  // sum over j of p_j * dp_j
        for (Extent c = 0; c < width; ++c) delta += get(kernel.d_o, i, c) * get(kernel.o, i, c);
        Values d_q(static_cast<std::size_t>(width), 0.0);
        for (Extent j = 0; j < keys; ++j) {
          if (!sees(i, j)) continue;
          const double pj = p[static_cast<std::size_t>(j)];
          double dp = 0;
          for (Extent c = 0; c < width; ++c) {
            dp += get(kernel.d_o, i, c) * get(kernel.v, j, c);
            put(kernel.d_v, j, c, get(kernel.d_v, j, c) + pj * kept(i, j) * get(kernel.d_o, i, c));
          }
          const double ds = pj * (dp * kept(i, j) - delta) * kernel.scale;
          for (Extent c = 0; c < width; ++c) {
            d_q[static_cast<std::size_t>(c)] += ds * get(kernel.k, j, c);
            put(kernel.d_k, j, c, get(kernel.d_k, j, c) + ds * get(kernel.q, i, c));
          }
        }
        for (Extent c = 0; c < width; ++c)
          put(kernel.d_q, i, c, to_type(d_q[static_cast<std::size_t>(c)], kernel.d_q.operand.type));
      }
      if (!kernel.backward || (h + 1) % members != 0) continue;
      for (Extent j = 0; j < keys; ++j)
        for (Extent c = 0; c < width; ++c)
          for (const Tensor* t : {&kernel.d_k, &kernel.d_v}) put(*t, j, c, to_type(get(*t, j, c), t->operand.type));
    }
}

void run(const kernel::Kernel& kernel, std::vector<Values>& buffers) {
  std::visit([&](const auto& k) { run(k, buffers); }, kernel);
}
void run(const kernel::Plan& plan, std::vector<Values>& buffers) {
  for (const kernel::Kernel& k : plan.kernels) run(k, buffers);
}

}  // namespace weft::reference
