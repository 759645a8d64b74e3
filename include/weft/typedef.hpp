// Byte layouts from schemas: a JSON Schema whose nodes also say how their values are stored.
//
//   const typedefs::Layout sample(Value::parse(R"({"TypeDef:Struct": true, "properties": {
//     "label": {"TypeDef:Enum": true, "enum": ["cat", "dog"]},
//     "pixels": {"TypeDef:Tensor": {"dtype": "u8", "shape": [28, 28]}}}})"));
//   sample.range("pixels");  // [4, 788)
//   const typedefs::Encoded bytes = sample.encode(Value::object({{"label", "dog"}, {"pixels", pixels}}));
//   sample.view(bytes.data).at("label").string();  // "dog"
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/error.hpp"
#include "weft/schema.hpp"
#include "weft/value.hpp"

namespace weft::typedefs {

/// What a node stores, by its keyword "TypeDef:NAME". The value of the keyword is `true`, or an object of annotations.
///
/// | keyword | bytes | alignment | value |
/// |---|---|---|---|
/// | Int8, Uint8, Int16, Uint16, Int32, Uint32, Int64, Uint64 | 1 to 8 | as the bytes | integer |
/// | Float16, BFloat16, Float32, Float64 | 2 to 8 | as the bytes | number; "nan", "inf", "-inf" |
/// | Boolean | 1, which is 0 or 1 | 1 | boolean |
/// | Enum | 4: the index in `enum` | 4 | one of the strings of `enum` |
/// | String, Timestamp (RFC 3339), Bytes | 4 for the length, and the data | 4 | string; Bytes: a u8 tensor |
/// | Tensor {dtype, shape} | the elements, as in host memory; little-endian | as an element | tensor |
/// | Struct {align} | the `properties` in their order | as its fields | object |
/// | Array | the `items`; before them a u32 count unless minItems = maxItems | as its items | array |
/// | Record | a u32 count, then for each member a key (as String) and a value (`additionalProperties`) | 4 | object |
/// | Union {discriminator, mapping} | the discriminator, then the chosen type | as its parts | object |
///
/// "TypeDef:Align": 1 to 256, a power of two, beside a kind sets the alignment of this node; it wins over the type's own. The
/// root may have "TypeDef:Endian": "big".
///
/// Strings, Bytes and Timestamps: `maxLength` limits the bytes, and in aligned mode reserves them, padded with zeros. With
/// {"encoding": "offset-indirect"} the node has a u32 offset and a u32 length into a separate region of at most 4 GiB.
/// Arrays with `maxItems` reserve room for these in aligned mode.
///
/// Unions: {"discriminator": "shape", "mapping": {"circle": {...}, "square": {...}}} stores the index in the mapping as u32; the
/// types are structs, and the value is the chosen one's object with the member "shape". {"discriminator": {"offset": 0, "type":
/// "Uint8"}, "mapping": {"1": {...}}} stores the number itself, and the value is {"__discriminator": 1, "value": ...}.
enum class Kind : std::uint8_t {
  int8,
  uint8,
  int16,
  uint16,
  int32,
  uint32,
  int64,
  uint64,
  float16,
  bfloat16,
  float32,
  float64,
  boolean,
  enumeration,
  string,
  timestamp,
  bytes,
  tensor,
  structure,
  array,
  record,
  union_of,
};
/// "TypeDef:Int8", ...
std::string_view keyword_of(Kind kind);

/// packed: no padding; where a field is may depend on the data before it. aligned: every field has a fixed offset, and sizes are
/// multiples of alignments; variable data needs `maxLength`, `maxItems` or the encoding "offset-indirect".
enum class Mode : std::uint8_t { packed, aligned };

/// A schema that is not a layout, a path that has no offset, bytes that cannot be read, or a value that does not fit.
class LayoutError : public Error {
 public:
  enum class Code : std::uint8_t { schema, offset, access, validation };
  LayoutError(Code code, std::string path, const std::string& message)
      : Error(message), code_(code), path_(std::move(path)) {}
  Code code() const { return code_; }
  /// Of the schema (a JSON pointer) or of the value (with dots).
  const std::string& path() const { return path_; }

 private:
  Code code_;
  std::string path_;
};

/// Bytes [begin, end).
struct Range {
  std::uint64_t begin = 0, end = 0;
  std::uint64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

namespace detail {
struct Node;
struct Compiled;
}  // namespace detail

/// A value in bytes that are not copied. Valid while the bytes are; the layout may go. Bounds, UTF-8, booleans and indices are
/// checked where they are read, so that any bytes can be viewed. Errors: LayoutError `access`.
class View {
 public:
  Kind kind() const;
  /// Of this value, in the bytes of the whole.
  Range range() const;
  /// A part: fields, indices and the names of a union's types, with dots. "shape.__discriminator" is the choice of a union.
  View at(std::string_view path) const;
  /// Elements of an array, members of a record, or fields of a struct.
  std::uint64_t size() const;
  /// The key of a record's member.
  std::string_view key(std::uint64_t index) const;

  bool boolean() const;
  std::int64_t integer() const;
  double number() const;
  /// A string, a timestamp, the word of an enum, or the name of a union's chosen type; in the bytes, or in the schema.
  std::string_view string() const;
  /// The data of Bytes or of a tensor.
  std::span<const std::byte> bytes() const;
  /// All of it, copied.
  Value value() const;
  /// Reads all of it. Errors: LayoutError `access` for the first part that cannot be read.
  void check() const;

 private:
  friend class Layout;
  View(std::shared_ptr<const detail::Compiled> layout, const detail::Node* node, std::span<const std::byte> bytes,
       std::span<const std::byte> region, std::uint64_t begin, std::string path)
      : layout_(std::move(layout)),
        node_(node),
        bytes_(bytes),
        region_(region),
        begin_(begin),
        path_(std::move(path)) {}
  View part(const detail::Node* node, std::uint64_t begin, std::string_view name) const;
  View step(std::string_view name) const;
  Value copied(std::uint64_t& budget) const;

  std::shared_ptr<const detail::Compiled> layout_;
  const detail::Node* node_;
  std::span<const std::byte> bytes_, region_;
  std::uint64_t begin_;
  std::string path_;
};

/// A value in bytes, and the region of its offset-indirect data.
struct Encoded {
  std::vector<std::byte> data, region;
};

/// A layout's schema from a tree of elements, {"type", "props", "children"}, the form in which JSX writes trees: the types are the
/// kinds ("Struct", "Tensor", "Uint8", ...), and props their annotations and keywords. A Struct and a Union have children
/// {"type": "Field", "props": {"name", "align"}}, each with one child; an Array and a Record have one. Errors: UsageError.
Value schema_from_elements(const Value& element);

enum class Language : std::uint8_t { cpp, rust, typescript, wgsl };

/// A schema with the places of its fields. Copies share it. Thread safety: any number of threads may use one.
class Layout {
 public:
  /// Errors: LayoutError `schema` with the place in the schema: no or several kinds at a node, annotations that do not fit,
  /// references that have no target or lead in a circle, sizes that overflow, variable data in aligned mode.
  explicit Layout(Value schema, Mode mode = Mode::aligned);

  /// With "#/$defs/NAME" in place of bare names of references.
  const Value& schema() const;
  Mode mode() const;
  bool is_big_endian() const;
  /// Nothing if it depends on the data (packed mode).
  std::optional<std::uint64_t> size_bytes() const;
  std::uint64_t alignment() const;
  /// Whether values have offset-indirect data.
  bool uses_region() const;
  /// Of elements of an array: the size, rounded up to the alignment. Errors: LayoutError `offset` without a fixed size.
  std::uint64_t stride() const;

  /// Where a part is. Errors: LayoutError `offset`: no such part, or its place depends on the data.
  Range range(std::string_view path) const;
  /// All parts with fixed places that have no parts themselves; of an array the first element stands for all ("items.0").
  std::vector<std::pair<std::string, Range>> ranges() const;

  View view(std::span<const std::byte> bytes, std::span<const std::byte> region = {}) const;
  /// The element type of a tensor, and its shape. Errors: LayoutError `offset` as `range`, and for other kinds.
  std::pair<DType, Shape> tensor_at(std::string_view path) const;

  /// What is wrong with a value as JSON, with tensors for Tensor and Bytes.
  std::vector<schema::Violation> check(const Value& value) const;
  /// Errors: LayoutError `validation` for a value that `check` refuses, or that does not fit its place.
  Encoded encode(const Value& value) const;

 private:
  friend std::string declarations(const Layout& layout, Language language, std::string_view name);
  std::shared_ptr<const detail::Compiled> compiled_;
};

/// Code that declares a Struct of fixed size under a name, with its bytes where the layout has them. In C++ and Rust structs are packed
/// and have their padding as fields, so that every alignment is possible; f16 and bf16 are their bits, and booleans bytes. In
/// WGSL a struct is for storage buffers and has words of 4 bytes. In TypeScript a type is that of values, as JSON, and a constant has
/// the places. Names that a language keeps, or cannot have, are changed. Errors: LayoutError `schema` for big-endian layouts, for
/// sizes that depend on the data, and for what the language lacks.
std::string declarations(const Layout& layout, Language language, std::string_view name);

}  // namespace weft::typedefs
