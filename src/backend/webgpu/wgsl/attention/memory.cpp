// Binds the kernel's tensors, and loads their rows to workgroup memory.
#include "backend/webgpu/wgsl/attention/writer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::webgpu::attention {
using Tensor = kernel::AttentionKernel::Tensor;

Bound AttentionWriter::bind_tensor(const Tensor& tensor, bool written) {
  Bound bound{&tensor, bindings_.add(tensor.operand, written)};
  bound.vectors = kernel_.width % 4 == 0 && tensor.operand.offset % 4 == 0 && tensor.batch_stride % 4 == 0 &&
                  tensor.head_stride % 4 == 0 && tensor.row_stride % 4 == 0;
  if (written && tensor.operand.type != DType::f32 && tensor.operand.type != DType::f16 &&
      tensor.operand.type != DType::bf16)
    throw DTypeError(fmt::format("webgpu: attention writes f32, f16 and bf16, not {}; cast its result",
                                 name_of(tensor.operand.type)));
  if (bound.vectors) {
    bindings_.want_vectors(bound.handle);
  } else if (written) {
    bindings_.forbid_vectors(bound.handle);
  }
  bound.of_keys = &tensor == &kernel_.k || &tensor == &kernel_.v || &tensor == &kernel_.d_k || &tensor == &kernel_.d_v;
  return bound;
}

void AttentionWriter::bind() {
  for (const Tensor* tensor :
       {&kernel_.q, &kernel_.k, &kernel_.v, &kernel_.o, &kernel_.d_o, &kernel_.d_q, &kernel_.d_k, &kernel_.d_v})
    if (tensor->operand.count > 0 && !reads_as_f32(tensor->operand.type))
      throw DTypeError(fmt::format("webgpu: attention of {}: it reads and writes numbers that compute in f32",
                                   name_of(tensor->operand.type)));
  q_ = bind_tensor(kernel_.q, false);
  k_ = bind_tensor(kernel_.k, false);
  v_ = bind_tensor(kernel_.v, false);
  if (part_ == Part::forward) {
    o_ = bind_tensor(kernel_.o, true);
    logsumexp_ = bindings_.add(kernel_.logsumexp, true);
    bindings_.forbid_vectors(logsumexp_);
  } else {
    d_o_ = bind_tensor(kernel_.d_o, false);
    logsumexp_ = bindings_.add(kernel_.logsumexp, false);
    const bool twice = computes_delta_twice(kernel_);
    if (!twice) {
      delta_ = bindings_.add(delta_operand_, part_ == Part::d_query);
      bindings_.forbid_vectors(delta_);
    }
    if (twice || part_ == Part::d_query) o_ = bind_tensor(kernel_.o, false);
    // Parts that run side by side bind the same ranges, because rows of the three tensors may alternate in one buffer.
    if (twice || part_ == Part::d_query) d_q_ = bind_tensor(kernel_.d_q, true);
    if (twice || part_ == Part::d_key_value) {
      d_k_ = bind_tensor(kernel_.d_k, true);
      d_v_ = bind_tensor(kernel_.d_v, true);
    }
  }
  if (ranges_.exist()) {
    words_ = bindings_.add(ranges_.words, false);
    bindings_.forbid_vectors(words_);
  }
  extras_.bind(bindings_);
  bindings_.resolve();
  for (Bound* bound : {&q_, &k_, &v_, &o_, &d_o_, &d_q_, &d_k_, &d_v_})
    if (bound->tensor) bound->vectors = bound->vectors && bindings_.has_vectors(bound->handle);
}

const Bound& AttentionWriter::bound_of(Matter matter) const {
  switch (matter) {
    case Matter::q: return q_;
    case Matter::k: return k_;
    case Matter::v: return v_;
    case Matter::d_o: return d_o_;
  }
  return q_;
}

std::string AttentionWriter::row_start(const Bound& bound, const std::string& row) const {
  const Tensor& t = *bound.tensor;
  return fmt::format("{} * {}u + {} * {}u + {}u + ({}) * {}u", &bound == &o_ ? batch_of_result() : "batch",
                     static_cast<std::uint32_t>(t.batch_stride), bound.of_keys ? "kv_head" : "head",
                     static_cast<std::uint32_t>(t.head_stride), bindings_.base(bound.handle), row,
                     static_cast<std::uint32_t>(t.row_stride));
}

std::string AttentionWriter::channels(const Bound& bound, const std::string& row, const std::string& d) {
  if (!bindings_.is_bound(bound.handle)) return "vec4f()";
  const std::string start = row_start(bound, row);
  if (bound.vectors) {
    if (kernel_.width == 4 * vectors_)
      return bindings_.load_vec4f(bound.handle, fmt::format("(({}) >> 2u) + {}", start, d), helpers_);
    return fmt::format(
        "select(vec4f(), {}, {} < {}u)",
        bindings_.load_vec4f(bound.handle, fmt::format("(({}) >> 2u) + min({}, {}u)", start, d, kernel_.width / 4 - 1),
                             helpers_),
        d, kernel_.width / 4);
  }
  std::string values;
  for (int e = 0; e < 4; ++e) {
    const std::string channel = fmt::format("({} * 4u + {}u)", d, e);
    values += fmt::format(
        "{}select(0f, {}, {} < {}u)", e ? ", " : "",
        bindings_.load_f32(bound.handle, fmt::format("{} + min({}, {}u)", start, channel, kernel_.width - 1), helpers_),
        channel, kernel_.width);
  }
  return fmt::format("vec4f({})", values);
}

std::string AttentionWriter::stat_index(int handle, const std::string& row) const {
  return fmt::format("({} * {}u + head) * {}u + {} + {}u", batch_of_result(), kernel_.heads, kernel_.queries, row,
                     bindings_.base(handle));
}

std::string AttentionWriter::slab_value(Matter matter, const std::string& row, const std::string& d) {
  const bool owned = is_owned(matter);
  const Extent extent = owned ? owned_ : others_, rows = slab_rows(block_, matter);
  const std::string first = owned ? "first" : "other0";
  std::string value;
  if (extent % rows == 0) {
    value = channels(bound_of(matter), fmt::format("{} + {}", first, row), d);
  } else {
    value = channels(bound_of(matter), fmt::format("min({} + {}, {}u)", first, row, extent - 1), d);
    if (!owned) value = fmt::format("select(vec4f(), {}, {} + {} < {}u)", value, first, row, extent);
  }
  // Scores are in units of log 2, ready for exp2.
  const bool scaled = owned && matter == (owns_queries() ? Matter::q : Matter::k);
  return scaled ? fmt::format("{} * {}", value, literal(kernel_.scale * kLog2E)) : value;
}

// Loads directly to workgroup memory.
void AttentionWriter::write_fill(const Phase::Load& load, int slice) {
  const int count = slab_rows(block_, load.matter) * slice_;
  if (block_.written && is_even(load.matter)) {
    for (int i = 0; i < loads_of(load.matter); ++i)
      line(fmt::format("{} = {};", slab_place(load.buffer, load_row(i), "load_vector"),
                       slab_value(load.matter, load_row(i), fmt::format("(load_vector + {}u)", slice * slice_))));
    return;
  }
  line(fmt::format("for (var at = thread; at < {}; at += {}u) {{", end_of(count), block_.threads()));
  line(fmt::format("  let row = {};", divided("at", slice_)));
  line(fmt::format("  let d = {};", modulo("at", slice_)));
  line(fmt::format("  {} = {};", slab_place(load.buffer, "row", "d"),
                   slab_value(load.matter, "row", fmt::format("(d + {}u)", slice * slice_))));
  line("}");
}

// Loads to registers; write_store stores them.
void AttentionWriter::write_load(const Phase& phase) {
  for (std::size_t l = 0; l < phase.loads.size(); ++l)
    for (int i = 0; i < loads_of(phase.loads[l].matter); ++i)
      line(fmt::format(
          "next{}_{} = {};", l, i,
          slab_value(phase.loads[l].matter, load_row(i), fmt::format("(load_vector + {}u)", phase.slice * slice_))));
}

void AttentionWriter::write_store(const Phase& phase) {
  for (std::size_t l = 0; l < phase.loads.size(); ++l)
    for (int i = 0; i < loads_of(phase.loads[l].matter); ++i)
      line(fmt::format("{} = next{}_{};", slab_place(phase.loads[l].buffer, load_row(i), "load_vector"), l, i));
}

// Logsumexp and rowsum(dO * O) of the tile's queries.
void AttentionWriter::write_row_stats() {
  line(fmt::format("for (var at = thread; at < {}; at += {}u) {{", end_of(block_.tile()), block_.threads()));
  deeper([&] {
    line(fmt::format("let query = min(other0 + at, {}u);", kernel_.queries - 1));
    line("var delta = 0f;");
    line(fmt::format("for (var d = 0u; d < {}; d++) {{ delta += dot({}, {}); }}", end_of(vectors_),
                     channels(d_o_, "query", "d"), channels(o_, "query", "d")));
    write_log_sum("log_sum", "query");
    line("$row_stats[at] = vec2f(log_sum, delta);");
  });
  line("}");
}

}  // namespace weft::webgpu::attention
