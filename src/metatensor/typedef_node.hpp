// Layouts as nodes: what a schema says about bytes, with offsets computed for its mode.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dtype.hpp"
#include "weft/typedef.hpp"

namespace weft::typedefs::detail {

inline constexpr std::string_view kDiscriminator = "__discriminator";
inline constexpr std::uint64_t kAlignmentMax = 256;
inline constexpr int kDepthMax = 64;  // of nested types

struct Node;

/// A field of a struct, or a type of a union.
struct Member {
  std::string name;
  const Node* node = nullptr;
  std::optional<std::uint64_t> offset;  // nothing if it depends on the data
  std::uint64_t number = 0;             // union: the discriminator
};

struct Node {
  Kind kind = Kind::int8;
  std::uint64_t alignment = 1;
  std::optional<std::uint64_t> size;  // of every value
  int height = 1;                     // levels of nested types

  DType dtype = DType::u8;  // tensor
  Shape shape;
  std::vector<Member> members;          // structure, union
  std::vector<std::string> words;       // enumeration
  const Node* element = nullptr;        // array, record
  std::optional<std::uint64_t> max;     // bytes of a string, elements of an array
  std::optional<std::uint64_t> count;   // array of fixed count; otherwise a u32 comes first
  std::uint64_t stride = 0, first = 0;  // array of elements with a fixed size: from the beginning of the array
  bool is_indirect = false;             // string
  std::uint64_t tag_offset = 0;         // union
  int tag_bytes = 4;
  std::uint64_t variant_offset = 0;
  std::string tag_field;  // "" for a discriminator by bytes

  const Member* find(std::string_view name) const;
};

struct Compiled {
  Value schema;
  Mode mode = Mode::aligned;
  bool is_big_endian = false;
  const Node* root = nullptr;
  std::deque<Node> nodes;
  std::vector<std::string> definitions;  // of $defs that nodes refer to
  bool uses_region = false;
  std::optional<schema::Schema> form;  // of values
};

/// Bytes of a kind with numbers; 0 for others.
int number_bytes(Kind kind);
bool is_text(Kind kind);  // string, timestamp, bytes

/// Fills nodes and root. Errors: LayoutError `schema`.
void compile(Compiled& layout);
/// The JSON Schema of values, once the layout is compiled.
Value form_of(const Compiled& layout);

/// The parts of a path: "a.0.b" -> a, 0, b.
std::vector<std::string_view> parts_of(std::string_view path);
/// The path of a part.
std::string joined(std::string_view path, std::string_view name);
/// An index, if the text is one.
std::optional<std::uint64_t> index_from(std::string_view text);

/// A whole number in bytes, in the order of the layout.
std::uint64_t load_bits(const std::byte* from, int bytes, bool big_endian);
void store_bits(std::uint64_t bits, std::byte* to, int bytes, bool big_endian);

}  // namespace weft::typedefs::detail
