#include "weft/nn/state.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "graph/node.hpp"
#include "io/safetensors.hpp"
#include "nn/state_views.hpp"
#include "tensor/element.hpp"

namespace weft::nn {
namespace {

std::size_t bytes_of(DType dtype, const Shape& shape) {
  return weft::bytes_of(dtype, static_cast<std::size_t>(shape.numel()));
}

std::vector<std::byte> download(const Tensor& value) {
  std::vector<std::byte> bytes(bytes_of(value.dtype(), value.shape()));
  value.copy_to(bytes.data(), bytes.size());
  return bytes;
}

Tensor tensor_of(const std::shared_ptr<graph::Cell>& cell) { return Tensor(graph::value_of(cell)); }

std::string description(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", name_of(dtype), shape.to_string());
}

// PyTorch's norms of batches count the batches beside their statistics; nothing here reads the number.
bool is_batch_count(std::string_view name, std::span<const NamedShape> expected) {
  constexpr std::string_view kCount = "num_batches_tracked", kMean = "running_mean";
  if (!name.ends_with(kCount)) return false;
  const std::string mean = std::string(name.substr(0, name.size() - kCount.size())) + std::string(kMean);
  return std::any_of(expected.begin(), expected.end(), [&](const NamedShape& each) { return each.name == mean; });
}

}  // namespace

const NamedArray* find(const StateDict& state, std::string_view name) {
  const auto it = std::find_if(state.begin(), state.end(), [&](const NamedArray& a) { return a.name == name; });
  return it == state.end() ? nullptr : &*it;
}

StateDict read_state(std::span<const NamedVariable> variables) {
  StateDict state;
  std::map<const graph::Cell*, std::vector<std::byte>> shared;
  for (const auto& [name, variable] : variables) {
    NamedArray array{name, variable.dtype(), variable.shape(), {}};
    if (const auto& whole = variable.cell()->shared) {
      auto [it, is_new] = shared.try_emplace(whole.get());
      if (is_new) it->second = download(tensor_of(whole));
      const auto begin =
          it->second.begin() + variable.cell()->offset * static_cast<Extent>(size_bytes(variable.dtype()));
      array.bytes.assign(begin, begin + static_cast<std::ptrdiff_t>(bytes_of(array.dtype, array.shape)));
    } else {
      array.bytes = download(variable.value());
    }
    state.push_back(std::move(array));
  }
  return state;
}

void check_state(std::span<const NamedShape> expected, const StateDict& state, bool strict, std::string_view owner) {
  std::string missing, unknown, different;
  std::map<std::string_view, const NamedArray*> given;
  for (const NamedArray& array : state)
    if (!given.emplace(array.name, &array).second) unknown += fmt::format("\n  given twice  {}", array.name);
  for (const NamedShape& want : expected) {
    const auto it = given.find(want.name);
    if (it == given.end()) {
      if (strict) missing += fmt::format("\n  missing      {}  {}", want.name, description(want.dtype, want.shape));
      continue;
    }
    const NamedArray& have = *it->second;
    if (have.dtype != want.dtype || have.shape != want.shape)
      different += fmt::format("\n  differs      {}  given {}, here {}", want.name, description(have.dtype, have.shape),
                               description(want.dtype, want.shape));
    else if (have.bytes.size() != bytes_of(have.dtype, have.shape))
      different += fmt::format("\n  differs      {}  {} bytes given for {}", want.name, have.bytes.size(),
                               description(have.dtype, have.shape));
    given.erase(it);
  }
  if (strict)
    for (const auto& [name, array] : given)
      if (!is_batch_count(name, expected))
        unknown += fmt::format("\n  unknown      {}  {}", name, description(array->dtype, array->shape));
  if (!missing.empty() || !unknown.empty() || !different.empty())
    throw UsageError(
        fmt::format("state of {}: the names or shapes given are not those of this object; build it with the options it "
                    "was saved with{}{}{}",
                    owner, missing, unknown, different));
}

StateDict cast_state(const StateDict& state, std::span<const NamedShape> expected, bool lossy) {
  std::map<std::string_view, DType> types;
  for (const NamedShape& want : expected) types.emplace(want.name, want.dtype);
  StateDict result;
  for (const NamedArray& array : state) {
    const auto want = types.find(array.name);
    // An array whose size does not fit its shape is refused later, by name.
    if (want == types.end() || want->second == array.dtype || !(lossy || holds_all(want->second, array.dtype)) ||
        array.bytes.size() != bytes_of(array.dtype, array.shape)) {
      result.push_back(array);
      continue;
    }
    NamedArray cast{array.name, want->second, array.shape, std::vector<std::byte>(bytes_of(want->second, array.shape))};
    cast_elements(array.dtype, array.bytes.data(), cast.dtype, cast.bytes.data(),
                  static_cast<std::size_t>(array.shape.numel()));
    result.push_back(std::move(cast));
  }
  return result;
}

void write_state(std::span<const NamedVariable> variables, const StateDict& state, bool strict,
                 std::string_view owner) {
  std::vector<NamedShape> expected;
  for (const auto& [name, variable] : variables) expected.push_back({name, variable.dtype(), variable.shape()});
  check_state(expected, state, strict, owner);

  struct Whole {
    std::shared_ptr<graph::Cell> cell;
    std::vector<std::pair<const Variable*, const NamedArray*>> parts;
    Extent covered = 0;
  };
  std::map<const graph::Cell*, Whole> wholes;
  for (const auto& [name, variable] : variables) {
    const NamedArray* array = find(state, name);
    if (!array) continue;
    if (const auto& cell = variable.cell()->shared) {
      Whole& whole = wholes[cell.get()];
      whole.cell = cell;
      whole.parts.emplace_back(&variable, array);
      whole.covered += variable.numel();
    } else {
      Variable target = variable;
      target.assign(tensor_from_bytes(array->bytes.data(), array->shape, array->dtype, variable.device()));
    }
  }
  for (auto& [key, whole] : wholes) {
    const Tensor before = tensor_of(whole.cell);
    std::vector<std::byte> bytes = whole.covered == before.numel()
                                       ? std::vector<std::byte>(bytes_of(before.dtype(), before.shape()))
                                       : download(before);
    for (const auto& [variable, array] : whole.parts)
      if (!array->bytes.empty())
        std::memcpy(bytes.data() + static_cast<std::size_t>(variable->cell()->offset) * size_bytes(array->dtype),
                    array->bytes.data(), array->bytes.size());
    graph::set_pending(whole.cell,
                       tensor_from_bytes(bytes.data(), before.shape(), before.dtype(), before.device()).node());
  }
}

void save_state(const std::filesystem::path& path, const StateDict& state) {
  std::vector<io::TensorView> views;
  for (const NamedArray& array : state) views.push_back(view_of(array));
  io::write_safetensors(path, views, {{"format", "weft"}});
}

StateDict load_state(const std::filesystem::path& path) {
  const io::SafetensorsFile file = io::SafetensorsFile::open(path);
  StateDict state;
  for (const io::TensorView& view : file.tensors()) state.push_back(named_array(view, file.source()));
  return state;
}

}  // namespace weft::nn
