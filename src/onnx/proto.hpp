// The messages of an ONNX file, as far as Weft reads them. Texts and elements are views of the file's bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/array.hpp"
#include "onnx/wire.hpp"

namespace weft {
class MappedFile;
}
namespace weft::onnx {

/// Numbers of ONNX's element types.
enum ElementType : std::int32_t {
  kFloat = 1,
  kUint8,
  kInt8,
  kUint16,
  kInt16,
  kInt32,
  kInt64,
  kString,
  kBool,
  kFloat16,
  kDouble,
  kUint32,
  kUint64,
  kComplex64,
  kComplex128,
  kBfloat16,
  kUint4 = 21,
  kInt4,
  kUint2 = 25,
  kInt2
};
/// Whether elements are smaller than a byte.
bool is_narrow(std::int64_t type);
/// The dtype of an ONNX element type that ops compute with. Errors: DTypeError that names it.
DType dtype_of_element(std::int64_t type);
/// "FLOAT", "STRING", "type 99".
std::string element_type_name(std::int64_t type);

struct TensorProto {
  std::string_view name;
  std::vector<Extent> dims;
  std::int64_t type = 0;
  Bytes message;  // all fields, from which the elements are read
  struct External {
    std::string_view location;
    std::uint64_t offset = 0;
    std::optional<std::uint64_t> length;
  };
  std::optional<External> external;
};

struct GraphProto;

struct AttributeProto {
  enum Type : std::int32_t { kUndefined, kReal, kInteger, kText, kTensor, kGraph, kReals, kIntegers, kTexts };
  std::string_view name;
  std::int64_t type = 0;
  float real = 0;
  std::int64_t integer = 0;
  std::string_view text;
  std::string_view reference;  // inside of a function: an attribute of its call
  std::vector<float> reals;
  std::vector<std::int64_t> integers;
  std::vector<std::string_view> texts;
  std::shared_ptr<TensorProto> tensor;
  std::shared_ptr<GraphProto> graph;
};

struct NodeProto {
  std::vector<std::string_view> inputs, outputs;
  std::string_view name, type, domain;
  std::vector<AttributeProto> attributes;
  const AttributeProto* attribute(std::string_view name) const;
  /// "Relu \"r1\"", for messages.
  std::string title() const;
};

/// A name with the type and shape that the file declares. `kind` is "tensor", or what else it is.
struct ValueInfo {
  struct Dim {
    std::optional<Extent> extent;
    std::string_view parameter;  // the name of an extent that is not fixed
  };
  std::string_view name;
  std::string_view kind = "unknown";
  std::int64_t type = 0;
  bool has_shape = false;
  std::vector<Dim> dims;
};

struct GraphProto {
  std::string_view name;
  std::vector<NodeProto> nodes;
  std::vector<TensorProto> initialisers;
  std::vector<ValueInfo> inputs, outputs;
};

using Opsets = std::map<std::string, std::int64_t, std::less<>>;  // domain -> version; "" is ONNX's own

struct FunctionProto {
  std::string_view name, domain;
  std::vector<std::string_view> inputs, outputs, attributes;
  std::vector<AttributeProto> defaults;
  std::vector<NodeProto> nodes;
  Opsets opsets;
};

struct ModelProto {
  std::int64_t ir_version = 0;
  std::string_view producer, producer_version;
  Opsets opsets;
  GraphProto graph;
  std::vector<FunctionProto> functions;
  std::map<std::pair<std::string_view, std::string_view>, const FunctionProto*> function_by_name;  // domain, name
  std::vector<std::pair<std::string_view, std::string_view>> metadata;
};

/// Reads the messages. Errors: FileError "source: ..." for bytes that are not a model, graphs nested too deeply, and more
/// messages than any model needs. What is allocated is at most some hundred bytes for each message, of which there are at most
/// kMaxMessages.
ModelProto parse_model(Bytes bytes, const std::string& source);
TensorProto parse_tensor(Bytes bytes, const std::string& source);
inline constexpr std::size_t kMaxMessages = 2'000'000;
inline constexpr int kMaxDepth = 16;
inline constexpr std::size_t kMaxDims = 16;  // axes of a tensor

/// The elements. Sizes are checked against the bytes in the file before anything is allocated.
/// Errors  FileError: a shape whose size is not that of the elements; external data outside of `folder`, in a file that is not
///         regular, or beyond its end. DTypeError: a type that Weft lacks, such as strings.
/// Integers of 2 and 4 bits are refused, or become u8 and i8, which hold the same numbers.
enum class Narrow : std::uint8_t { refuse, widen };
io::Array elements_of(const TensorProto& tensor, const std::string& source, const std::filesystem::path& folder,
                      Narrow narrow = Narrow::refuse);
/// The same without a copy where the file has the elements as they are.
struct ElementView {
  DType dtype = DType::f32;
  Shape shape;
  Bytes bytes;                             // of the model's file, of `file`, or of `made`
  std::shared_ptr<const MappedFile> file;  // of external data
  std::vector<std::byte> made;
};
ElementView view_elements(const TensorProto& tensor, const std::string& source, const std::filesystem::path& folder,
                          Narrow narrow);

}  // namespace weft::onnx
