// Values of tensors: from and to host memory, moving between devices.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/checked.hpp"
#include "graph/describe.hpp"
#include "graph/history.hpp"
#include "graph/node.hpp"
#include "graph/packed.hpp"
#include "graph/trace_scope.hpp"
#include "runtime/devices.hpp"
#include "runtime/evaluate.hpp"
#include "runtime/packed_matrix.hpp"
#include "runtime/runtime_state.hpp"
#include "tensor/element.hpp"
#include "weft/tensor.hpp"

namespace weft {

using graph::NodeRef;

Tensor tensor_from_bytes(const void* data, const Shape& shape, DType type, Device device) {
  const auto count = static_cast<Extent>(checked_numel<ShapeError>(shape, "tensor"));
  checked_multiply<ShapeError>(count, std::max<Extent>(element(type).bits / 8, 1), "tensor");
  backend::Backend& backend = runtime::backend_of(device);
  const auto& dtypes = backend.describe().dtypes;
  if (std::find(dtypes.begin(), dtypes.end(), type) == dtypes.end())
    throw DTypeError(
        fmt::format("tensor: {} does not hold {}; convert to f32, or use the CPU", device.to_string(), name_of(type)));
  if (is_block(type)) {
    graph::check_block_shape("tensor", type, shape);
    return pack_matrix(type, {static_cast<const std::byte*>(data), bytes_of(type, static_cast<std::size_t>(count))},
                       shape, device);
  }
  backend::BufferPtr buffer = runtime::allocate(device, backend.storage_bytes(type, count), [&] {
    return fmt::format("tensor {} {}", name_of(type), shape.to_string());
  });
  if (count > 0) backend.upload(*buffer, 0, count, type, data);
  return Tensor(runtime::data_node(type, shape, device, std::move(buffer)));
}

template <class T>
Tensor tensor(std::span<const T> values, const Shape& shape, Where where) {
  if (static_cast<Extent>(values.size()) != shape.numel())
    throw ShapeError(graph::describe(
        "tensor",
        fmt::format("{} values for shape {} with {} elements", values.size(), shape.to_string(), shape.numel()), {},
        where));
  return tensor_from_bytes(values.data(), shape, dtype_of<T>);
}

const Tensor& Tensor::eval(Where where) const {
  shape(where);  // throws if there is no value
  const Tensor* const list[] = {this};
  weft::eval(std::span(list));
  return *this;
}

void eval(std::span<const Tensor* const> tensors) {
  std::vector<NodeRef> list;
  for (const Tensor* t : tensors) {
    t->shape();  // throws if there is no value
    list.push_back(t->node());
  }
  if (list.empty()) return;
  runtime::evaluate(list);
  list.clear();
  for (const Tensor* t : tensors) graph::let_go_of_inputs(t->node_);
}

void eval(std::span<const Tensor> tensors) {
  std::vector<const Tensor*> list;
  for (const Tensor& t : tensors) list.push_back(&t);
  eval(std::span<const Tensor* const>(list));
}

void eval_pending() { runtime::evaluate({}); }

namespace {

// The element of a view's base that element `index` of the view is. `views` leads from the view down to the base.
Extent base_index(std::span<const graph::Node* const> views, Extent index) {
  for (const graph::Node* view : views) {
    const Shape &shape = view->shape, &input = view->inputs[0]->shape;
    if (view->kind == graph::Kind::reshape || view->kind == graph::Kind::detach) continue;
    std::vector<Extent> strides(input.size());  // of the input
    Extent stride = 1;
    for (int axis = input.rank(); axis-- > 0; stride *= input[axis]) strides[static_cast<std::size_t>(axis)] = stride;
    Extent at = 0;
    for (int axis = shape.rank(); axis-- > 0; index /= shape[axis]) {
      const Extent place = index % shape[axis];
      const auto a = static_cast<std::size_t>(axis);
      switch (view->kind) {
        case graph::Kind::permute: at += place * strides[static_cast<std::size_t>(view->ints[a])]; break;
        case graph::Kind::expand: at += input[axis] == 1 ? 0 : place * strides[a]; break;
        default: at += (view->ints[2 * a] + place * view->ints[2 * a + 1]) * strides[a];
      }
    }
    index = at;
  }
  return index;
}

// Reads a few elements that views find in memory directly, because each place would need its own plan. False if that cannot be
// done.
bool read_in_place(const graph::Node& node, backend::Backend& backend, void* out) {
  constexpr Extent kFew = 16;
  constexpr int kRankMax = 16;
  const Extent count = node.shape.numel();
  if (count < 1 || count > kFew || node.storage) return false;
  std::vector<const graph::Node*> views;
  const graph::Node* base = &node;
  for (; !base->storage; base = base->inputs[0].get()) {
    if (!graph::is_view(base->kind) || base->kind == graph::Kind::pad || base->kind == graph::Kind::window ||
        base->shape.rank() > kRankMax || base->inputs[0]->shape.rank() > kRankMax)
      return false;
    views.push_back(base);
  }
  const Extent first = base_index(views, 0);
  for (Extent i = 1; i < count; ++i)
    if (base_index(views, i) != first + i) return false;
  backend.download(*runtime::buffer_of(*base), first, count, node.type, out);
  return true;
}

}  // namespace

void Tensor::copy_to(void* out, std::size_t bytes, Where where) const {
  const std::size_t needed = bytes_of(dtype(where), static_cast<std::size_t>(numel()));
  if (bytes != needed)
    throw UsageError(graph::describe("copy_to", fmt::format("{} bytes are given for {} bytes", bytes, needed),
                                     {{"x", *this}}, where));
  // Elements in memory may be read from any session.
  backend::Backend& backend = *graph::session_of(*node_).part<runtime::RuntimeState>().device(device()).backend;
  if (!graph::TraceScope::current() && read_in_place(*node_, backend, out)) return runtime::evaluate({}, device());
  runtime::evaluate({&node_, 1});  // looking at a value does not let go of what it was made from
  if (!needed) return;
  if (!node_->storage) {  // a constant
    std::memcpy(out, runtime::constant_bytes(*node_).data(), needed);
    return;
  }
  if (graph::has_packed_layout(*node_)) return unpack_matrix(*this, {static_cast<std::byte*>(out), bytes});
  backend.download(*runtime::buffer_of(*node_), 0, numel(), dtype(), out);
}

namespace {

/// Memory of the host for the elements of a tensor; the standard's exceptions name neither the tensor nor the size.
template <class T>
std::vector<T> host_values(const Tensor& x) {
  try {
    return std::vector<T>(static_cast<std::size_t>(x.numel()));
  } catch (const std::exception&) {
    throw DeviceError(fmt::format("to_vector: there is no memory for the {} bytes of {} {}",
                                  bytes_of(x.dtype(), static_cast<std::size_t>(x.numel())), name_of(x.dtype()),
                                  x.shape().to_string()));
  }
}

template <class T>
void check_type(std::string_view op, const Tensor& x, Where where) {
  if (x.dtype(where) == dtype_of<T>) return;
  throw DTypeError(
      graph::describe(op, fmt::format("the tensor is {}, not {}; cast it", name_of(x.dtype()), name_of(dtype_of<T>)),
                      {{"x", x}}, where));
}

}  // namespace

template <class T>
std::vector<T> Tensor::to_vector(Where where) const {
  check_type<T>("to_vector", *this, where);
  if constexpr (std::is_same_v<T, bool>) {
    auto bytes = host_values<unsigned char>(*this);
    copy_to(bytes.data(), bytes.size());
    return std::vector<bool>(bytes.begin(), bytes.end());
  } else {
    auto values = host_values<T>(*this);
    copy_to(values.data(), values.size() * sizeof(T));
    return values;
  }
}
template <class T>
T Tensor::item(Where where) const {
  if (numel(where) != 1)
    throw ShapeError(graph::describe("item", fmt::format("the tensor has {} elements; item takes one", numel()),
                                     {{"x", *this}}, where));
  check_type<T>("item", *this, where);
  std::conditional_t<std::is_same_v<T, bool>, unsigned char, T> value;
  copy_to(&value, sizeof value);
  return static_cast<T>(value);
}
#define WEFT_HOST_TYPE(T)                                          \
  template Tensor tensor(std::span<const T>, const Shape&, Where); \
  template std::vector<T> Tensor::to_vector(Where) const;          \
  template T Tensor::item(Where) const;
WEFT_HOST_TYPE(float)
WEFT_HOST_TYPE(double)
WEFT_HOST_TYPE(Float16)
WEFT_HOST_TYPE(BFloat16)
WEFT_HOST_TYPE(std::int64_t)
WEFT_HOST_TYPE(std::int32_t)
WEFT_HOST_TYPE(std::int16_t)
WEFT_HOST_TYPE(std::int8_t)
WEFT_HOST_TYPE(std::uint64_t)
WEFT_HOST_TYPE(std::uint32_t)
WEFT_HOST_TYPE(std::uint16_t)
WEFT_HOST_TYPE(std::uint8_t)
WEFT_HOST_TYPE(bool)
#undef WEFT_HOST_TYPE

Tensor Tensor::to(Device target, Where where) const {
  if (device(where) == target) return *this;
  std::vector<std::byte> bytes(bytes_of(dtype(), static_cast<std::size_t>(numel())));
  copy_to(bytes.data(), bytes.size());
  return tensor_from_bytes(bytes.data(), shape(), dtype(), target);
}

}  // namespace weft
