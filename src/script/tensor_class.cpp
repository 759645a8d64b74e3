// Tensors as the script has them: handles with a shape and a dtype, whose elements are read when they are asked for.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "base/checked.hpp"
#include "script/engine.hpp"
#include "script/loop.hpp"
#include "tensor/element.hpp"
#include "weft/grad.hpp"
#include "weft/ops.hpp"

namespace weft::script {
namespace {

constexpr Extent kElementsMax = Extent{1} << 26;  // of nested arrays

Tensor self_tensor(Engine& engine, JSValueConst self) { return engine.tensor(self, "this"); }

Local list_of(Engine& engine, const std::vector<Extent>& extents) {
  Local list = engine.array();
  for (std::size_t i = 0; i < extents.size(); ++i)
    engine.set(list.get(), static_cast<std::uint32_t>(i), {engine.context, JS_NewInt64(engine.context, extents[i])});
  return list;
}

Local shape_of(Engine& engine, JSValueConst self, Arguments) {
  return list_of(engine, self_tensor(engine, self).shape().vector());
}
Local dtype_of(Engine& engine, JSValueConst self, Arguments) {
  return engine.string(weft::name_of(self_tensor(engine, self).dtype()));
}
Local device_of(Engine& engine, JSValueConst self, Arguments) {
  return engine.string(self_tensor(engine, self).device().to_string());
}
Local rank_of(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewInt32(engine.context, self_tensor(engine, self).rank())};
}
Local size_of(Engine& engine, JSValueConst self, Arguments) {
  return {engine.context, JS_NewInt64(engine.context, self_tensor(engine, self).numel())};
}

// One element in host form.
JSValue element_value(JSContext* context, DType type, const std::byte* bytes, std::size_t i) {
  if (type == DType::i64 || type == DType::u64) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + 8 * i, 8);
    return type == DType::i64 ? JS_NewBigInt64(context, static_cast<std::int64_t>(word))
                              : JS_NewBigUint64(context, word);
  }
  const double value = read_element(type, bytes, i);
  return type == DType::boolean ? JS_NewBool(context, value != 0) : JS_NewNumber(context, value);
}

std::vector<std::byte> elements_of(Engine& engine, const Tensor& tensor) {
  engine.check_host_bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
  engine.evaluate(tensor);
  std::vector<std::byte> bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
  tensor.copy_to(bytes.data(), bytes.size());
  return bytes;
}

Local item(Engine& engine, JSValueConst self, Arguments) {
  const Tensor tensor = self_tensor(engine, self);
  if (tensor.numel() != 1)
    throw ShapeError(
        fmt::format("item: the tensor has {} elements {}; item takes one", tensor.numel(), tensor.shape().to_string()));
  if (is_block(tensor.dtype())) throw DTypeError("item: the tensor is in blocks; cast it to f32");
  return {engine.context, element_value(engine.context, tensor.dtype(), elements_of(engine, tensor).data(), 0)};
}

Local nested(Engine& engine, const Tensor& tensor, const std::vector<std::byte>& bytes, int axis, std::size_t& place) {
  if (axis == tensor.rank())
    return {engine.context, element_value(engine.context, tensor.dtype(), bytes.data(), place++)};
  Local list = engine.array();
  for (Extent i = 0; i < tensor.shape()[axis]; ++i)
    engine.set(list.get(), static_cast<std::uint32_t>(i), nested(engine, tensor, bytes, axis + 1, place));
  return list;
}

Local to_array(Engine& engine, JSValueConst self, Arguments) {
  const Tensor tensor = self_tensor(engine, self);
  if (is_block(tensor.dtype())) throw DTypeError("toArray: the tensor is in blocks; cast it to f32");
  if (tensor.numel() > kElementsMax)
    throw UsageError(fmt::format("toArray: {} elements; arrays of at most {} are made, so use read()", tensor.numel(),
                                 kElementsMax));
  if (tensor.numel() == 0 && tensor.rank() > 0)
    for (const Extent extent : tensor.shape())
      if (extent > kElementsMax) throw UsageError("toArray: an empty tensor with a huge extent");
  std::size_t place = 0;
  return nested(engine, tensor, elements_of(engine, tensor), 0, place);
}

Local read_now(Engine& engine, JSValueConst self, Arguments) {
  const Tensor tensor = self_tensor(engine, self);
  return typed_array(engine, tensor.dtype(), elements_of(engine, tensor));
}

// Computes on the other thread.
Local read_later(Engine& engine, JSValueConst self, Arguments) {
  const Tensor tensor = self_tensor(engine, self);
  if (engine.depth > 0) throw UsageError("read: inside a compiled function, where arguments have no elements yet");
  engine.check_host_bytes(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
  const auto bytes = std::make_shared<std::vector<std::byte>>();
  return engine.loop->promise(
      [tensor, bytes] {
        bytes->resize(bytes_of(tensor.dtype(), static_cast<std::size_t>(tensor.numel())));
        tensor.copy_to(bytes->data(), bytes->size());
      },
      [&engine, type = tensor.dtype(), bytes] { return typed_array(engine, type, *bytes); });
}

// Gives the script's handle the value after eval, which has no inputs, unless the handle has got another value meanwhile.
void keep_evaluated(Engine& engine, JSValueConst self, const Tensor& before, const Tensor& after) {
  TensorHandle* handle = engine.tensor_handle(self);
  if (handle && handle->value.node() == before.node()) handle->value = after;
}

Local eval_later(Engine& engine, JSValueConst self, Arguments) {
  const Tensor before = self_tensor(engine, self);
  const auto tensor = std::make_shared<const Tensor>(before);
  const auto handle = std::make_shared<Local>(engine.context, JS_DupValue(engine.context, self));
  return engine.loop->promise([tensor] { tensor->eval(); },
                              [&engine, before, tensor, handle] {
                                keep_evaluated(engine, handle->get(), before, *tensor);
                                return std::move(*handle);
                              });
}

Local eval_now(Engine& engine, JSValueConst self, Arguments) {
  const Tensor before = self_tensor(engine, self), tensor = before;
  engine.evaluate(tensor);
  keep_evaluated(engine, self, before, tensor.eval());
  return {engine.context, JS_DupValue(engine.context, self)};
}

Local to_text(Engine& engine, JSValueConst self, Arguments) { return engine.string(inspect(engine, self)); }

Local dispose(Engine& engine, JSValueConst self, Arguments) {
  TensorHandle* const handle = engine.tensor_handle(self);
  if (!handle) Engine::refuse("dispose", "this is not a tensor");
  handle->value = {};
  return {};
}
Local is_disposed(Engine& engine, JSValueConst self, Arguments) {
  const TensorHandle* const handle = engine.tensor_handle(self);
  if (!handle) Engine::refuse("isDisposed", "this is not a tensor");
  return {engine.context, JS_NewBool(engine.context, !handle->value.defined())};
}

// x.to("f16") and x.to("webgpu:0").
Local to(Engine& engine, JSValueConst self, Arguments arguments) {
  const Tensor tensor = self_tensor(engine, self);
  const std::string name = engine.text(at(arguments, 0));
  for (const DType type : kAllDTypes)
    if (weft::name_of(type) == name) return engine.make(cast(tensor, type));
  return engine.make(tensor.to(parse_device(name)));
}

Local named(Engine& engine, JSValueConst self, Arguments arguments) {
  return engine.make(self_tensor(engine, self).named(engine.text(at(arguments, 0)).substr(0, 200)));
}
Local label(Engine& engine, JSValueConst self, Arguments) { return engine.string(self_tensor(engine, self).label()); }

// x.get(0, [1, 4], null): a position, a part [start, stop, step], or all of an axis; a tensor of positions or a mask.
Local get(Engine& engine, JSValueConst self, Arguments arguments) {
  const Tensor x = self_tensor(engine, self);
  if (arguments.size() == 1) {
    if (const Tensor places = engine.tensor_or_none(arguments[0]); places.defined()) return engine.make(x[places]);
  }
  Tensor y = x;
  int axis = 0;
  for (const JSValueConst& argument : arguments) {
    if (axis >= y.rank())
      throw ShapeError(fmt::format("get: {} places for {}", arguments.size(), x.shape().to_string()));
    if (engine.is_nullish(argument)) {
      ++axis;
    } else if (JS_IsArray(argument)) {
      const std::uint32_t count = engine.length(argument, "get: a part", 3);
      Slice slice;
      Extent* const fields[] = {&slice.start, &slice.stop, &slice.step};
      for (std::uint32_t i = 0; i < count; ++i) {
        const Local value = engine.element(argument, i);
        if (!engine.is_nullish(value.get())) *fields[i] = engine.integer(value.get(), "get: a part");
      }
      if (slice.step == 0) Engine::refuse("get", "a step of 0");
      const Extent extent = y.shape()[axis];
      if (axis == 0) {
        y = y[Index(slice)];
      } else {
        y = transpose(transpose(y, 0, axis)[Index(slice)], 0, axis);
      }
      (void)extent;
      ++axis;
    } else {
      const Extent place = engine.integer(argument, "get: a position"), extent = y.shape()[axis];
      if (place < -extent || place >= extent)
        throw ShapeError(fmt::format("get: position {} of an axis with {} places", place, extent));
      y = select(y, axis, place);
    }
  }
  return engine.make(y);
}

Local backward_of(Engine& engine, JSValueConst self, Arguments arguments) {
  backward(self_tensor(engine, self),
           JS_IsUndefined(at(arguments, 0)) ? Tensor() : engine.tensor(arguments[0], "seed"));
  return {};
}

// ---- The five calls underneath --------------------------------------------------------------------------------------------------

// tensor(data, {dtype, shape, device}); create is the same for bytes.
Local make_tensor(Engine& engine, JSValueConst, Arguments arguments) {
  Options options(engine, at(arguments, 1), "tensor");
  std::optional<DType> type;
  if (const Local given = options.value("dtype"); !JS_IsUndefined(given.get())) type = engine.dtype(given.get());
  const auto shape = options.list("shape");
  const std::string device = options.text("device", "");
  options.finish();
  return engine.make(tensor_from(engine, at(arguments, 0), type,
                                 shape ? std::optional<Shape>(Shape(*shape)) : std::nullopt,
                                 device.empty() ? std::nullopt : std::optional<Device>(parse_device(device))));
}

Local create(Engine& engine, JSValueConst, Arguments arguments) {
  const std::vector<std::byte> bytes = bytes_of_buffer(engine, at(arguments, 0), "create: the bytes");
  const Shape shape(engine.extents(at(arguments, 1), "create: the shape"));
  const DType type = engine.dtype(at(arguments, 2));
  checked_numel<ShapeError>(shape, "create");
  const std::size_t needed = bytes_of(type, static_cast<std::size_t>(shape.numel()));
  if (needed != bytes.size())
    throw ShapeError(fmt::format("create: {} bytes for {} {}, which has {}", bytes.size(), weft::name_of(type),
                                 shape.to_string(), needed));
  return engine.make(tensor_from_bytes(bytes.data(), shape, type));
}

// read(handle): its bytes. write(handle, bytes): a Variable's next value, or another value for this handle alone.
Local read_bytes(Engine& engine, JSValueConst, Arguments arguments) {
  const std::vector<std::byte> bytes = elements_of(engine, engine.tensor(at(arguments, 0), "read: the handle"));
  return engine.checked(
      JS_NewArrayBufferCopy(engine.context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
}
Local write_bytes(Engine& engine, JSValueConst, Arguments arguments) {
  const JSValueConst target = at(arguments, 0);
  const Tensor old = engine.tensor(target, "write: the handle");
  const std::vector<std::byte> bytes = bytes_of_buffer(engine, at(arguments, 1), "write: the bytes");
  if (bytes.size() != bytes_of(old.dtype(), static_cast<std::size_t>(old.numel())))
    throw ShapeError(
        fmt::format("write: {} bytes for {} {}", bytes.size(), weft::name_of(old.dtype()), old.shape().to_string()));
  const Tensor next = tensor_from_bytes(bytes.data(), old.shape(), old.dtype(), old.device());
  if (VariableHandle* variable = engine.variable_handle(target))
    variable->value.assign(next);
  else
    engine.tensor_handle(target)->value = next;
  return {};
}

// ---- Elements of the script -----------------------------------------------------------------------------------------------------

struct Reader {
  Engine& engine;
  std::vector<double> numbers;
  std::vector<std::int64_t> wholes;
  std::vector<Extent> extents;
  bool any_number = false, any_boolean = false, any_bigint = false;
  bool is_unsigned = false;  // whether BigInts up to 2^64 fit

  void read(JSValueConst value, std::size_t depth) {
    if (JS_IsArray(value)) {
      if (depth >= 16) Engine::refuse("tensor", "arrays nest deeper than 16");
      const std::uint32_t length = engine.length(value, "tensor: the data", 1u << 26);
      if (extents.size() == depth) {
        if (!numbers.empty()) Engine::refuse("tensor", "numbers and arrays are mixed");
        extents.push_back(length);
      } else if (extents[depth] != length) {
        throw ShapeError(fmt::format("tensor: rows of {} and of {} elements", extents[depth], length));
      }
      for (std::uint32_t i = 0; i < length; ++i) read(engine.element(value, i).get(), depth + 1);
      return;
    }
    if (depth != extents.size()) Engine::refuse("tensor", "numbers and arrays are mixed");
    if (numbers.size() >= static_cast<std::size_t>(kElementsMax))
      Engine::refuse("tensor", fmt::format("more than {} elements; use a typed array", kElementsMax));
    std::int64_t whole = 0;
    if (JS_IsBigInt(value)) {
      any_bigint = true;
      whole = engine.big_integer(value, "tensor: an element", is_unsigned);
      numbers.push_back(static_cast<double>(whole));
    } else if (JS_IsBool(value)) {
      any_boolean = true;
      numbers.push_back(JS_VALUE_GET_BOOL(value));
      whole = JS_VALUE_GET_BOOL(value);
    } else if (JS_IsNumber(value)) {
      any_number = true;
      numbers.push_back(engine.number(value, "tensor: an element"));
      const double real = numbers.back();
      whole = std::abs(real) < 0x1p63 ? static_cast<std::int64_t>(real) : 0;
    } else {
      Engine::refuse("tensor", "an element is " + inspect(engine, value) + ", not a number, a boolean or an array");
    }
    wholes.push_back(whole);
  }
};

std::optional<DType> type_of_typed_array(int kind) {
  switch (kind) {
    case JS_TYPED_ARRAY_INT8: return DType::i8;
    case JS_TYPED_ARRAY_UINT8C:
    case JS_TYPED_ARRAY_UINT8: return DType::u8;
    case JS_TYPED_ARRAY_INT16: return DType::i16;
    case JS_TYPED_ARRAY_UINT16: return DType::u16;
    case JS_TYPED_ARRAY_INT32: return DType::i32;
    case JS_TYPED_ARRAY_UINT32: return DType::u32;
    case JS_TYPED_ARRAY_BIG_INT64: return DType::i64;
    case JS_TYPED_ARRAY_BIG_UINT64: return DType::u64;
    case JS_TYPED_ARRAY_FLOAT16: return DType::f16;
    case JS_TYPED_ARRAY_FLOAT32: return DType::f32;
    case JS_TYPED_ARRAY_FLOAT64: return DType::f64;
    default: return std::nullopt;
  }
}

}  // namespace

std::vector<std::byte> bytes_of_buffer(Engine& engine, JSValueConst value, std::string_view what) {
  std::size_t offset = 0, length = 0, size = 0;
  Local buffer;
  if (JS_GetTypedArrayType(value) >= 0) {
    buffer = engine.checked(JS_GetTypedArrayBuffer(engine.context, value, &offset, &length, nullptr));
  } else if (JS_IsArrayBuffer(value)) {
    buffer = Local(engine.context, JS_DupValue(engine.context, value));
  } else {
    throw UsageError(fmt::format("{} are {}, not an ArrayBuffer or a typed array", what, inspect(engine, value)));
  }
  const std::uint8_t* const bytes = JS_GetArrayBuffer(engine.context, &size, buffer.get());
  if (JS_IsArrayBuffer(value)) length = size;
  if (!bytes) {
    if (JS_HasException(engine.context)) JS_FreeValue(engine.context, JS_GetException(engine.context));
    if (size == 0 && length == 0 && offset == 0) return {};
    throw UsageError(fmt::format("{} are in a buffer that was detached", what));
  }
  if (offset > size || length > size - offset) throw UsageError(fmt::format("{} are outside of their buffer", what));
  const auto* const begin = reinterpret_cast<const std::byte*>(bytes) + offset;
  return {begin, begin + length};
}

Tensor tensor_from(Engine& engine, JSValueConst data, std::optional<DType> type, std::optional<Shape> shape,
                   std::optional<Device> device) {
  const Device on = device.value_or(default_device());
  if (Tensor given = engine.tensor_or_none(data); given.defined()) {
    if (type) given = cast(given, *type);
    if (shape) given = reshape(given, *shape);
    return device ? given.to(*device) : given;
  }
  const auto kind = type_of_typed_array(JS_GetTypedArrayType(data));
  if (kind) {
    const std::vector<std::byte> bytes = bytes_of_buffer(engine, data, "tensor: the data");
    const Shape whole{static_cast<Extent>(bytes.size() / size_bytes(*kind))};
    const Shape wanted = shape.value_or(whole);
    if (checked_numel<ShapeError>(wanted, "tensor") != static_cast<std::size_t>(whole[0]))
      throw ShapeError(fmt::format("tensor: {} elements for shape {}", whole[0], wanted.to_string()));
    Tensor made = tensor_from_bytes(bytes.data(), wanted, *kind, on);
    return type && *type != *kind ? cast(made, *type) : made;
  }
  Reader reader{engine, {}, {}, {}};
  reader.extents.reserve(16);
  reader.is_unsigned = type == DType::u64;
  reader.read(data, 0);
  const Shape own((std::vector<Extent>(reader.extents)));
  const Shape wanted = shape.value_or(own);
  if (checked_numel<ShapeError>(wanted, "tensor") != reader.numbers.size())
    throw ShapeError(fmt::format("tensor: {} elements for shape {}", reader.numbers.size(), wanted.to_string()));
  const DType natural = reader.any_number    ? DType::f32
                        : reader.any_bigint  ? DType::i64
                        : reader.any_boolean ? DType::boolean
                                             : DType::f32;
  const DType made = type.value_or(natural);
  if (is_block(made)) return cast(tensor_from(engine, data, DType::f32, shape, device), made);
  std::vector<std::byte> bytes(bytes_of(made, reader.numbers.size()));
  for (std::size_t i = 0; i < reader.numbers.size(); ++i) {
    if (made == DType::i64 || made == DType::u64)
      std::memcpy(bytes.data() + 8 * i, &reader.wholes[i], 8);
    else
      write_element(made, reader.numbers[i], bytes.data(), i);
  }
  return tensor_from_bytes(bytes.data(), wanted, made, on);
}

Local typed_array(Engine& engine, DType type, std::span<const std::byte> bytes) {
  JSTypedArrayEnum kind = JS_TYPED_ARRAY_UINT8;
  switch (type) {
    case DType::f32: kind = JS_TYPED_ARRAY_FLOAT32; break;
    case DType::f64: kind = JS_TYPED_ARRAY_FLOAT64; break;
    case DType::f16: kind = JS_TYPED_ARRAY_FLOAT16; break;
    case DType::i32: kind = JS_TYPED_ARRAY_INT32; break;
    case DType::u32: kind = JS_TYPED_ARRAY_UINT32; break;
    case DType::i64: kind = JS_TYPED_ARRAY_BIG_INT64; break;
    case DType::u64: kind = JS_TYPED_ARRAY_BIG_UINT64; break;
    case DType::i16: kind = JS_TYPED_ARRAY_INT16; break;
    case DType::u16:
    case DType::bf16: kind = JS_TYPED_ARRAY_UINT16; break;
    case DType::i8: kind = JS_TYPED_ARRAY_INT8; break;
    default: break;
  }
  const Local buffer = engine.checked(
      JS_NewArrayBufferCopy(engine.context, reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()));
  JSValueConst arguments[] = {buffer.get()};
  return engine.checked(JS_NewTypedArray(engine.context, 1, arguments, kind));
}

void define_tensor(Engine& engine) {
  const Local prototype = engine.make_class(engine.tensor_class, "Tensor");
  const JSValueConst p = prototype.get();
  engine.getter(p, "shape", native<shape_of>);
  engine.getter(p, "dtype", native<dtype_of>);
  engine.getter(p, "device", native<device_of>);
  engine.getter(p, "rank", native<rank_of>);
  engine.getter(p, "size", native<size_of>);
  engine.getter(p, "label", native<label>);
  engine.getter(p, "isDisposed", native<is_disposed>);
  engine.method(p, "item", native<item>, 0);
  engine.method(p, "toArray", native<to_array>, 0);
  engine.method(p, "read", native<read_later>, 0);
  engine.method(p, "readSync", native<read_now>, 0);
  engine.method(p, "eval", native<eval_now>, 0);
  engine.method(p, "evalAsync", native<eval_later>, 0);
  engine.method(p, "toString", native<to_text>, 0);
  engine.method(p, "dispose", native<dispose>, 0);
  engine.method(p, "to", native<to>, 1);
  engine.method(p, "named", native<named>, 1);
  engine.method(p, "get", native<get>, 1);
  engine.method(p, "backward", native<backward_of>, 0);
  define_symbol(engine, p, "dispose", native<dispose>);
  const Local extend = engine.checked(JS_GetPropertyStr(engine.context, engine.pristine, "extendTensor"));
  JSValueConst argument = p;
  engine.checked(JS_Call(engine.context, extend.get(), JS_UNDEFINED, 1, &argument));
  add_function<make_tensor>(engine, "tensor", 1);
  add_function<create>(engine, "create", 3);
  add_function<read_bytes>(engine, "read", 1);
  add_function<write_bytes>(engine, "write", 2);
}

}  // namespace weft::script
