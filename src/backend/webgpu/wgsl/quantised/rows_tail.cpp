#include "backend/webgpu/wgsl/quantised/rows_tail.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "backend/webgpu/quantised_pack.hpp"
#include "backend/webgpu/wgsl/loop.hpp"
#include "backend/webgpu/wgsl/quantised/packed_reader.hpp"
#include "backend/webgpu/wgsl/quantised/rows_writer.hpp"
#include "backend/webgpu/wgsl/steps.hpp"
#include "compile/call_attributes.hpp"
#include "graph/cache.hpp"

namespace weft::webgpu {
using kernel::LoopKernel;
using kernel::Operand;
using kernel::Step;
using kernel::StepKind;

namespace {

Extent place_in(const kernel::View& view, Extent i) {
  Extent place = view.offset;
  for (std::size_t d = view.extents.size(); d-- > 0;) {
    place += i % view.extents[d] * view.strides[d];
    i /= view.extents[d];
  }
  return place;
}

/// The run of elements that a store writes in the order of its space; nothing if the order is another.
std::optional<Operand> run_of(const LoopKernel& loop, const kernel::Store& store, Extent count) {
  const Operand& out = loop.outputs[static_cast<std::size_t>(store.output)];
  if (out.type != DType::f32 || !store.view.bounds.empty()) return {};
  const Extent first = place_in(store.view, 0);
  for (Extent i = 0; i < count; ++i)
    if (place_in(store.view, i) != first + i) return {};
  return Operand{out.buffer, DType::f32, out.offset + first, count};
}

}  // namespace

RowsTail::RowsTail(const kernel::PackedMatmulKernel& product, const Target& target)
    : product_(product),
      target_(target),
      teams_(RowsWriter::threads_of(target, product) / RowsWriter::lanes_of(target)) {
  const Extent count = product.m * product.n;
  epilogue_ = without_inner(product.epilogue);
  if (product.m > kFewRows || product.experts || count == 0 || product.n % teams_ != 0 || epilogue_.stores.empty())
    return;
  for (const kernel::Store& store : epilogue_.stores) {
    const auto run = run_of(epilogue_, store, count);
    if (!run || epilogue_.steps[static_cast<std::size_t>(store.value)].type != DType::f32) return;
    held_.push_back({*run});
    values_.push_back(store.value);
  }
  kernel::visit_operands(product, [&](const Operand& o, bool is_written) {
    if (!is_written) reads_.push_back(o);
  });
  suits_ = true;
}

bool RowsTail::try_add(const kernel::Kernel& kernel) {
  if (!suits_) return false;
  if (const auto* loop = std::get_if<LoopKernel>(&kernel)) return try_add_loop(*loop);
  const auto* call = std::get_if<kernel::CallKernel>(&kernel);
  return call && call->op == &graph::write_rows_row() && try_add_write(*call);
}

// The latest result in these elements.
int RowsTail::held_at(const Operand& operand) const {
  for (std::size_t h = held_.size(); h-- > 0;)
    if (overlap(held_[h].operand, operand)) return static_cast<int>(h);
  return -1;
}

// No workgroup reads what another one writes.
bool RowsTail::is_free(const Operand& written) const {
  return std::none_of(reads_.begin(), reads_.end(), [&](const Operand& read) { return overlap(read, written); });
}

// Whether a workgroup has an even column and the next one.
bool RowsTail::has_neighbours(Extent distance) const {
  return teams_ % 2 == 0 && (distance <= 1 || (distance % 2 == 0 && teams_ / 2 % 2 == 0));
}

bool RowsTail::accept_distance(Extent distance) {
  if (distance_ == distance) return true;
  const bool has_halves = std::any_of(writes_.begin(), writes_.end(), [](const Write& each) {
    return kernel::attributes_of<graph::WriteRows>(each.write).type == CacheType::f16;
  });
  if (distance_ != 0 || teams_ % 2 != 0 || product_.n % (2 * distance) != 0 || product_.n / 2 % (teams_ / 2) != 0 ||
      (has_halves && !has_neighbours(distance)))
    return false;
  distance_ = distance;
  return true;
}

bool RowsTail::try_add_loop(const LoopKernel& given) {
  if (given.inner > 1) return false;
  const Extent n = product_.n, count = product_.m * n;
  Loop made{without_inner(given), {}, static_cast<int>(held_.size())};
  if (made.loop.outer != count || made.loop.stores.size() != 1 || made.loop.outputs.size() != 1) return false;
  const auto run = run_of(made.loop, made.loop.stores[0], count);
  if (!run || made.loop.steps[static_cast<std::size_t>(made.loop.stores[0].value)].type != DType::f32) return false;
  const std::vector<bool> needed = needed_steps(made.loop);
  std::vector<Operand> reads;
  Extent apart = 0;
  for (std::size_t s = 0; s < made.loop.steps.size(); ++s) {
    Step& step = made.loop.steps[s];
    if (!needed[s] || step.operand < 0) continue;
    const Operand& input = made.loop.inputs[static_cast<std::size_t>(step.operand)];
    const int held = held_at(input);
    if (held < 0) {
      reads.push_back(input);
      continue;
    }
    if (step.kind != StepKind::load || step.type != DType::f32 || input.type != DType::f32 || !step.view.bounds.empty())
      return false;
    // Of every element, the distance of the column that it reads.
    const Extent first = input.offset - held_[static_cast<std::size_t>(held)].operand.offset;
    std::optional<bool> partner;
    for (Extent i = 0; i < count; ++i) {
      const Extent from = first + place_in(step.view, i), off = std::abs(from - i);
      if (from < 0 || from >= count || from / n != i / n || (partner && *partner != (off != 0))) return false;
      partner = off != 0;
      if (off == 0) continue;
      if (apart == 0) apart = off;
      const Extent column = i % n, in_pair = column % (2 * apart);
      if (off != apart || from - i != (in_pair < apart ? apart : -apart)) return false;
    }
    made.sources[static_cast<int>(s)] = {held, *partner};
    step.kind = StepKind::accumulator;
    step.operand = -1;
  }
  if (made.sources.empty() || !is_free(*run) ||
      std::any_of(reads.begin(), reads.end(), [&](const Operand& o) { return overlap(o, *run); }) ||
      (apart != 0 && !accept_distance(apart)))
    return false;
  // An update in place: memory has the later value.
  for (Held& before : held_) before.stored = before.stored && !overlap(before.operand, *run);
  held_.push_back({*run});
  reads_.insert(reads_.end(), reads.begin(), reads.end());
  loops_.push_back(std::move(made));
  return true;
}

bool RowsTail::try_add_write(const kernel::CallKernel& given) {
  const CacheType type = kernel::attributes_of<graph::WriteRows>(given).type;
  kernel::CallKernel words = kernel::with_words(given);
  const Operand& values = words.reads[1];
  const int held = held_at(values);
  if (held < 0 || words.out() != words.reads[0] || words.shape()[0] == 0 || words.shapes[1][0] != product_.m ||
      words.shapes[1][1] != product_.n || values.offset != held_[static_cast<std::size_t>(held)].operand.offset ||
      type == CacheType::q8 || (type == CacheType::f16 && !has_neighbours(distance_)) || !is_free(words.out()))
    return false;
  reads_.push_back(words.reads[2]);
  writes_.push_back({std::move(words), held});
  return true;
}

bool RowsTail::finish(const std::function<bool(const Operand&)>& is_read) {
  if (loops_.empty() && writes_.empty()) return false;
  for (Held& each : held_) each.stored = each.stored && is_read(each.operand);
  for (const Held& each : held_)
    if (each.stored && !is_free(each.operand)) return false;
  LoopKernel left = epilogue_;
  left.stores.clear(), left.outputs.clear();
  for (std::size_t s = 0; s < epilogue_.stores.size(); ++s) {
    if (!held_[s].stored) continue;
    kernel::Store store = epilogue_.stores[s];
    left.outputs.push_back(epilogue_.outputs[static_cast<std::size_t>(store.output)]);
    store.output = static_cast<int>(left.outputs.size()) - 1;
    left.stores.push_back(store);
  }
  epilogue_ = std::move(left);
  for (Loop& each : loops_) {
    values_.push_back(each.loop.stores[0].value);
    if (!held_[static_cast<std::size_t>(each.held)].stored) each.loop.stores.clear(), each.loop.outputs.clear();
  }
  // The weights are several bindings of one operand.
  Bindings counted(target_, product_.name);
  std::size_t bindings = static_cast<std::size_t>(
      PackedReader(product_.block_type, product_.weights, product_.n, product_.k, counted).runs());
  std::vector<Operand> all;
  const auto add = [&](const Operand& operand) {
    if (operand.count > 0 && std::find(all.begin(), all.end(), operand) == all.end()) all.push_back(operand);
  };
  for (const Operand& read : reads_)
    if (!(read == product_.weights)) add(read);
  for (const Held& each : held_)
    if (each.stored) add(each.operand);
  for (const Write& each : writes_) add(each.write.out());
  return bindings + all.size() <= target_.limits.storage_buffers;
}

}  // namespace weft::webgpu
