#include "compile/kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "graph/op.hpp"

namespace weft::kernel {
namespace {

std::string text(const View& view) {
  std::string s = fmt::format("[{}]@{}", fmt::join(view.extents, ","), view.offset);
  if (!view.strides.empty()) s += fmt::format("+({})", fmt::join(view.strides, ","));
  for (std::size_t i = 0; i < view.bounds.size(); ++i)
    if (view.bounds[i].lo > 0 || view.bounds[i].hi < view.extents[i])
      s += fmt::format(" {}<=c{}<{}", view.bounds[i].lo, i, view.bounds[i].hi);
  return s;
}

std::string text(const MatrixView& view) {
  if (view.is_plain()) return fmt::format("({},{}) batch {}", view.row(), view.column(), text(view.at.batch));
  const auto sum = [](const MatrixView::Sum& s) {
    return fmt::format("batch {} rows {} columns {}", text(s.batch), text(s.rows), text(s.columns));
  };
  std::string s = sum(view.at);
  for (const MatrixView::Edge& edge : view.edges)
    s += fmt::format(" if {}<=({})<{}", edge.lo, sum(edge.value), edge.hi);
  return s;
}

std::string text(const Operand& o) { return fmt::format("b{}+{}:{}x{}", o.buffer, o.offset, o.count, name_of(o.type)); }

std::string text(const LoopKernel& k, std::string_view form) {
  std::string s = fmt::format("{} \"{}\" outer {} inner {}\n", form, k.name, k.outer, k.inner);
  for (std::size_t i = 0; i < k.inputs.size(); ++i) s += fmt::format("  in{} {}\n", i, text(k.inputs[i]));
  for (std::size_t i = 0; i < k.outputs.size(); ++i) s += fmt::format("  out{} {}\n", i, text(k.outputs[i]));
  for (std::size_t i = 0; i < k.steps.size(); ++i) {
    const Step& t = k.steps[i];
    s += fmt::format("  {}{} = ", t.level == Level::inner ? 'v' : 's', i);
    switch (t.kind) {
      case StepKind::constant: s += fmt::format("{} {}", t.value, name_of(t.type)); break;
      case StepKind::load: s += fmt::format("load in{} {}", t.operand, text(t.view)); break;
      case StepKind::gather:
        s += fmt::format("gather in{} %{}*{}<{} {}", t.operand, t.a, t.axis_stride, t.axis_extent, text(t.view));
        break;
      case StepKind::index: s += fmt::format("index {} {}", name_of(t.type), text(t.view)); break;
      case StepKind::reduce: s += fmt::format("{}(%{})", scalar::name_of(t.reduction), t.a); break;
      case StepKind::accumulator: s += "product"; break;
      case StepKind::map:
        s += fmt::format("{} {} %{}", scalar::name_of(t.op), name_of(t.type), t.a);
        if (t.b >= 0) s += fmt::format(" %{}", t.b);
        if (t.c >= 0) s += fmt::format(" %{}", t.c);
    }
    s += "\n";
  }
  for (const Store& store : k.stores)
    s += fmt::format("  store %{} out{} {}\n", store.value, store.output, text(store.view));
  return s;
}

double loop_flops(const LoopKernel& k) {
  double n = 0;
  for (const Step& s : k.steps) {
    const double points = static_cast<double>(k.outer) * (s.level == Level::inner ? static_cast<double>(k.inner) : 1.0);
    if (s.kind == StepKind::map) n += points;
    if (s.kind == StepKind::reduce) n += static_cast<double>(k.outer) * static_cast<double>(k.inner);
  }
  return n;
}

// Bytes of one element, a fraction for packed types.
double bytes_each(DType type) { return element(type).bits / 8.0; }

// Bytes that a step or store touches at least: repeated elements count once.
double touched(const View& view, DType type) {
  double n = 1;
  for (std::size_t i = 0; i < view.extents.size(); ++i)
    if (view.strides[i] != 0) n *= static_cast<double>(view.extents[i]);
  return n * bytes_each(type);
}

double loop_bytes(const LoopKernel& k) {
  double n = 0;
  for (const Step& s : k.steps)
    if (s.kind == StepKind::load || s.kind == StepKind::gather) n += touched(s.view, s.type);
  for (const Store& s : k.stores) n += touched(s.view, k.outputs[static_cast<std::size_t>(s.output)].type);
  return n;
}

double call_bytes(const CallKernel& k) {
  double n = 0;
  const int taken = k.op->in_place;
  for (std::size_t i = 0; i < k.reads.size(); ++i)
    if (static_cast<int>(i) != taken)
      n += static_cast<double>(bytes_of(k.types[i], static_cast<std::size_t>(k.shapes[i].numel())));
  if (taken >= 0) return 2 * n;
  for (std::size_t i = 0; i < k.outs.size(); ++i)
    n += static_cast<double>(bytes_of(k.out_types[i], static_cast<std::size_t>(k.out_shapes[i].numel())));
  return n;
}

}  // namespace

MatrixView MatrixView::transposed() const {
  MatrixView view = *this;
  std::swap(view.at.rows, view.at.columns);
  for (Edge& edge : view.edges) std::swap(edge.value.rows, edge.value.columns);
  return view;
}

MatrixView matrix_view(View batch, Extent rows, Extent row, Extent columns, Extent column) {
  return {{std::move(batch), {{rows}, {row}, 0, {}}, {{columns}, {column}, 0, {}}}, {}};
}

std::string to_string(const Kernel& kernel) {
  if (const auto* k = std::get_if<LoopKernel>(&kernel)) return text(*k, "loop");
  if (const auto* k = std::get_if<PackedMatmulKernel>(&kernel))
    return fmt::format("packed matmul \"{}\" m {} n {} k {} of {}{}  a {} ({})  b {}{}\n", k->name, k->m, k->n, k->k,
                       name_of(k->block_type), k->exact ? ", exact" : "", k->rows ? "computed" : text(k->a), k->a_row,
                       text(k->weights),
                       k->experts ? fmt::format("  experts {} of {}, share {}", text(k->experts->of_row),
                                                k->experts->count, k->experts->share)
                                  : "") +
           (k->rows ? text(*k->rows, "  rows") : "") + text(k->epilogue, "  epilogue");
  if (const auto* k = std::get_if<MatmulKernel>(&kernel))
    return fmt::format("matmul \"{}\" batch {} m {} n {} k {}{}  a {} {}  b {} {}\n", k->name, k->batch, k->m, k->n,
                       k->k, k->precision == ProductPrecision::exact ? "" : fmt::format(" {}", name_of(k->precision)),
                       text(k->a), text(k->a_view), text(k->b), text(k->b_view)) +
           text(k->epilogue, "  epilogue");
  if (const auto* k = std::get_if<ScatterAddKernel>(&kernel))
    return fmt::format("scatter_add count {} rows {} columns {}  {} {} -> {}\n", k->count, k->rows, k->columns,
                       text(k->indices), text(k->updates), text(k->out));
  if (const auto* k = std::get_if<CallKernel>(&kernel)) {
    std::string s = fmt::format("call {} [{}] ", k->name, fmt::join(k->attributes, ","));
    for (std::size_t i = 0; i < k->reads.size(); ++i)
      s += fmt::format(" {}{}", text(k->reads[i]), k->shapes[i].to_string());
    s += " ->";
    for (std::size_t i = 0; i < k->outs.size(); ++i)
      s += fmt::format(" {}{}", text(k->outs[i]), k->out_shapes[i].to_string());
    return s + "\n";
  }
  const auto& k = std::get<AttentionKernel>(kernel);
  std::string s = fmt::format("{} batch {} heads {} queries {} keys {} width {} scale {}{}{}{}", k.name, k.batch,
                              k.heads, k.queries, k.keys, k.width, k.scale, k.causal ? " causal" : "",
                              k.kv_heads != k.heads ? fmt::format(" kv heads {}", k.kv_heads) : "",
                              k.window > 0 ? fmt::format(" window {}", k.window) : "");
  if ((k.causal || k.window > 0) && k.shift != k.keys - k.queries) s += fmt::format(" shift {}", k.shift);
  if (k.dropped > 0) s += fmt::format(" dropped {}/256", k.dropped);
  const auto add = [&](std::string_view name, const AttentionKernel::Tensor& t) {
    s += fmt::format("  {} {} ({},{},{})", name, text(t.operand), t.batch_stride, t.head_stride, t.row_stride);
  };
  add("q", k.q);
  add("k", k.k);
  add("v", k.v);
  add("o", k.o);
  s += fmt::format("  logsumexp {}", text(k.logsumexp));
  if (k.backward) {
    add("d_o", k.d_o);
    add("d_q", k.d_q);
    add("d_k", k.d_k);
    add("d_v", k.d_v);
  }
  if (k.mask)
    s += fmt::format("  mask {} ({},{},{},{})", text(k.mask->operand), k.mask->batch_stride, k.mask->head_stride,
                     k.mask->row_stride, k.mask->key_stride);
  if (k.key_spans) s += fmt::format("  key spans {}", text(*k.key_spans));
  if (k.query_spans) s += fmt::format("  query spans {}", text(*k.query_spans));
  if (k.seed) s += fmt::format("  seed {}", text(*k.seed));
  return s + "\n";
}

std::string to_string(const Plan& plan) {
  std::string s;
  for (std::size_t i = 0; i < plan.buffers.size(); ++i) {
    const BufferInfo& b = plan.buffers[i];
    s += fmt::format("buffer b{} {} bytes {} {}\n", i, b.bytes,
                     b.external >= 0 ? fmt::format("external {}", b.external) : "scratch", b.label);
  }
  for (std::size_t i = 0; i < plan.kernels.size(); ++i) s += fmt::format("kernel {} {}", i, to_string(plan.kernels[i]));
  return s;
}

double flops(const Kernel& kernel) {
  if (const auto* k = std::get_if<LoopKernel>(&kernel)) return loop_flops(*k);
  if (const auto* k = std::get_if<MatmulKernel>(&kernel))
    return 2.0 * static_cast<double>(k->batch) * static_cast<double>(k->m) * static_cast<double>(k->n) *
               static_cast<double>(k->k) +
           loop_flops(k->epilogue);
  if (const auto* k = std::get_if<PackedMatmulKernel>(&kernel))
    return 2.0 * static_cast<double>(k->m) * static_cast<double>(k->n) * static_cast<double>(k->k) +
           (k->rows ? loop_flops(*k->rows) : 0) + loop_flops(k->epilogue);
  if (const auto* k = std::get_if<ScatterAddKernel>(&kernel))
    return static_cast<double>(k->count) * static_cast<double>(k->columns);
  if (const auto* k = std::get_if<CallKernel>(&kernel)) return k->flops;
  const auto& k = std::get<AttentionKernel>(kernel);
  double keys = static_cast<double>(k.keys) * (k.causal ? 0.5 : 1.0);
  if (k.window > 0) keys = std::min(keys, static_cast<double>(k.window) * (k.causal ? 1.0 : 2.0));
  const double pairs = static_cast<double>(k.queries) * keys;
  return static_cast<double>(k.batch * k.heads) * pairs * static_cast<double>(k.width) * (k.backward ? 10.0 : 4.0);
}

/// The most that a product reads of the weights of experts: those of one expert for each row, or all.
double share_of_weights(const PackedMatmulKernel& k) {
  return k.experts ? std::min(1.0, static_cast<double>(k.m) / static_cast<double>(k.experts->count)) : 1;
}

double bytes_moved(const Kernel& kernel) {
  if (const auto* k = std::get_if<LoopKernel>(&kernel)) return loop_bytes(*k);
  if (const auto* k = std::get_if<PackedMatmulKernel>(&kernel))
    return (k->rows ? loop_bytes(*k->rows) : 4.0 * static_cast<double>(k->rows_of_a() * k->k)) +
           4.0 * static_cast<double>(k->weights.count) * share_of_weights(*k) + loop_bytes(k->epilogue);
  if (const auto* k = std::get_if<MatmulKernel>(&kernel)) {
    const auto bytes = [&](const Operand& operand, const MatrixView& view, Extent matrix) {
      const double all = static_cast<double>(k->batch) * static_cast<double>(matrix);
      return bytes_each(operand.type) * (view.is_plain() ? all : std::min(all, static_cast<double>(operand.count)));
    };
    return bytes(k->a, k->a_view, k->m * k->k) + bytes(k->b, k->b_view, k->k * k->n) + loop_bytes(k->epilogue);
  }
  if (const auto* k = std::get_if<ScatterAddKernel>(&kernel))
    return 4.0 * static_cast<double>(k->count) +
           4.0 * static_cast<double>(k->columns) * static_cast<double>(k->count + k->rows);
  if (const auto* k = std::get_if<CallKernel>(&kernel)) return call_bytes(*k);
  const auto& k = std::get<AttentionKernel>(kernel);
  // Keys that heads share are counted for each head.
  const auto rows = [&](const AttentionKernel::Tensor& tensor, Extent positions) {
    return bytes_each(tensor.operand.type) * static_cast<double>(k.batch * k.heads * k.width * positions);
  };
  double forward = rows(k.q, k.queries) + rows(k.o, k.queries) + rows(k.k, k.keys) + rows(k.v, k.keys);
  if (k.mask) forward += bytes_each(k.mask->operand.type) * static_cast<double>(k.mask->operand.count);
  if (!k.backward) return forward;
  return forward + rows(k.d_o, k.queries) + rows(k.d_q, k.queries) + rows(k.d_k, k.keys) + rows(k.d_v, k.keys);
}

}  // namespace weft::kernel
