// Declarations of layouts in other languages, with the bytes where the layout has them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>

#include "base/quote.hpp"
#include "metatensor/typedef_node.hpp"

namespace weft::typedefs {
namespace {

using detail::Member;
using detail::Node;

[[noreturn]] void refuse_code(const std::string& path, std::string_view fact) {
  throw LayoutError(LayoutError::Code::schema, path,
                    fmt::format("{}: {}", path.empty() ? "the layout" : quote(path), fact));
}

constexpr int kPiecesMax = 10'000;  // definitions may be used any number of times

// Words that one of the languages keeps for itself.
constexpr std::string_view kReservedWords[] = {
    "abstract",  "alignas", "alignof",  "array",      "as",       "async",  "auto",     "await",     "become",
    "bool",      "box",     "break",    "case",       "catch",    "char",   "class",    "const",     "continue",
    "crate",     "default", "delete",   "diagnostic", "discard",  "do",     "double",   "dyn",       "else",
    "enable",    "enum",    "export",   "extends",    "extern",   "false",  "final",    "float",     "fn",
    "for",       "friend",  "function", "goto",       "if",       "impl",   "import",   "in",        "int",
    "let",       "long",    "loop",     "macro",      "match",    "mod",    "move",     "mut",       "mutable",
    "namespace", "new",     "null",     "operator",   "override", "priv",   "private",  "protected", "public",
    "pub",       "ref",     "register", "return",     "self",     "Self",   "short",    "signed",    "sizeof",
    "static",    "struct",  "super",    "switch",     "template", "this",   "throw",    "trait",     "true",
    "try",       "type",    "typedef",  "typeof",     "union",    "unsafe", "unsigned", "use",       "using",
    "var",       "virtual", "void",     "volatile",   "where",    "while",  "with",     "yield"};

std::string identifier(std::string_view name) {
  std::string text;
  for (const char c : name) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    text += is_plain ? c : '_';
  }
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) text.insert(0, "n");
  if (std::find(std::begin(kReservedWords), std::end(kReservedWords), text) != std::end(kReservedWords)) text += '_';
  return text;
}

/// What is written for a field: its type, and how often it is repeated.
struct Piece {
  std::string type;
  std::optional<std::uint64_t> count;
};

/// Writes structs in one language. Fields are bytes at offsets, and what lies between is padding that is written too.
class CodeWriter {
 public:
  explicit CodeWriter(const detail::Compiled& layout) : layout_(layout) {}
  virtual ~CodeWriter() = default;

  std::string run(std::string_view name) {
    if (layout_.is_big_endian) refuse_code("", "declarations are for little-endian layouts");
    if (!layout_.root->size) refuse_code("", "its size depends on the data; use aligned mode");
    if (layout_.root->kind != Kind::structure) refuse_code("", "is not a Struct");
    piece(*layout_.root, identifier(name), "");
    return begin() + out_ + end();
  }

 protected:
  struct Field {
    std::string name;  // "" for padding
    Piece piece;
    std::uint64_t offset = 0, size = 0;
  };

  virtual std::string begin() const = 0;
  virtual std::string end() const { return ""; }
  virtual std::string number(Kind kind, const std::string& path) const = 0;
  virtual std::string bytes_type() const = 0;
  virtual Piece element(DType dtype, const Shape& shape, std::uint64_t bytes, const std::string& path) = 0;
  virtual void put_struct(const std::string& type, const std::vector<Field>& fields, std::uint64_t size) = 0;
  virtual void put_union(const std::string& type, const std::vector<Field>& fields) = 0;
  virtual void put_enum(const std::string& type, const std::vector<std::string>& words) = 0;

  std::string take_name(const std::string& type, const std::string& path) {
    if (!names_.insert(type).second) refuse_code(path, fmt::format("two types would have the name {}", quote(type)));
    return type;
  }

  /// A node as a field, once the types that it needs are written. `type` is its name if it needs one.
  Piece piece(const Node& node, const std::string& type, const std::string& path) {
    if (++pieces_ > kPiecesMax) refuse_code(path, "there are too many parts to declare");
    switch (node.kind) {
      case Kind::structure: {
        if (node.size == 0) refuse_code(path, "a Struct without fields has no bytes");
        std::vector<Field> fields;
        for (const Member& member : node.members)
          fields.push_back(field(*member.node, member.name, *member.offset, type, path));
        return {structure(type, std::move(fields), *node.size, path), std::nullopt};
      }
      case Kind::enumeration: put_enum(take_name(type, path), node.words); return {type, std::nullopt};
      case Kind::string:
      case Kind::timestamp:
      case Kind::bytes: {
        const Piece u32{number(Kind::uint32, path), std::nullopt};
        if (node.is_indirect)
          return {structure(type, {{"offset", u32, 0, 4}, {"length", u32, 4, 4}}, 8, path), std::nullopt};
        return {structure(type, {{"length", u32, 0, 4}, {"data", {bytes_type(), *node.max}, 4, *node.max}}, *node.size,
                          path),
                std::nullopt};
      }
      case Kind::tensor: return element(node.dtype, node.shape, *node.size, path);
      case Kind::array: {
        if (node.stride != *node.element->size) refuse_code(path, "has padding between its elements");
        const Piece each = piece(*node.element, type + "_item", detail::joined(path, "0"));
        const std::uint64_t in_each = each.count.value_or(1);  // arrays of arrays are flat
        if (node.count) return {each.type, *node.count * in_each};
        return {structure(type,
                          {{"count", {number(Kind::uint32, path), std::nullopt}, 0, 4},
                           {"items", {each.type, *node.max * in_each}, node.first, *node.max * node.stride}},
                          *node.size, path),
                std::nullopt};
      }
      case Kind::union_of: return {union_type(node, type, path), std::nullopt};
      case Kind::record: refuse_code(path, "a Record has no fixed size");
      default: return {number(node.kind, path), std::nullopt};
    }
  }

  Field field(const Node& node, const std::string& name, std::uint64_t offset, const std::string& parent,
              const std::string& path) {
    const std::string plain = identifier(name);
    return {plain, piece(node, parent + "_" + plain, detail::joined(path, name)), offset, *node.size};
  }

  // Adds padding, and leaves out what takes no bytes.
  std::string structure(const std::string& type, std::vector<Field> fields, std::uint64_t size,
                        const std::string& path) {
    std::vector<Field> all;
    std::set<std::string> names;
    std::uint64_t at = 0;
    const auto pad = [&](std::uint64_t to) {
      if (to > at) all.push_back({"", {bytes_type(), to - at}, at, to - at});
      at = to;
    };
    for (Field& field : fields) {
      if (field.size == 0) continue;
      if (!names.insert(field.name).second)
        refuse_code(path, fmt::format("two fields would have the name {}", quote(field.name)));
      pad(field.offset);
      at += field.size;
      all.push_back(std::move(field));
    }
    pad(size);
    put_struct(take_name(type, path), all, size);
    return type;
  }

  std::string union_type(const Node& node, const std::string& type, const std::string& path) {
    std::vector<Field> variants;
    std::uint64_t largest = 0;
    for (const Member& member : node.members) {
      const std::string name = identifier(member.name);
      if (*member.node->size == 0) continue;
      variants.push_back(field(*member.node, name, 0, type, path));
      largest = std::max(largest, *member.node->size);
    }
    const Kind tag = node.tag_bytes == 1 ? Kind::uint8 : node.tag_bytes == 2 ? Kind::uint16 : Kind::uint32;
    std::vector<Field> fields{{"discriminator",
                               {number(tag, path), std::nullopt},
                               node.tag_offset,
                               static_cast<std::uint64_t>(node.tag_bytes)}};
    if (!variants.empty()) {
      put_union(take_name(type + "_variant", path), variants);
      fields.push_back({"variant", {type + "_variant", std::nullopt}, node.variant_offset, largest});
    }
    return structure(type, std::move(fields), *node.size, path);
  }

  const detail::Compiled& layout_;
  std::string out_;
  std::set<std::string> names_;
  int pieces_ = 0;
};

/// std::uint16_t and the like for C++, u16 for Rust: numbers by their bytes.
struct NumberNames {
  const char *i8, *u8, *i16, *u16, *i32, *u32, *i64, *u64, *f32, *f64;
  std::string of(Kind kind) const {
    switch (kind) {
      case Kind::int8: return i8;
      case Kind::uint8:
      case Kind::boolean: return u8;  // any byte may be there, and only 0 and 1 are booleans
      case Kind::int16: return i16;
      case Kind::uint16:
      case Kind::float16:
      case Kind::bfloat16: return u16;  // its bits
      case Kind::int32: return i32;
      case Kind::int64: return i64;
      case Kind::uint64: return u64;
      case Kind::float32: return f32;
      case Kind::float64: return f64;
      default: return u32;
    }
  }
  /// Nothing for elements that share bytes.
  std::string of(DType dtype) const {
    switch (dtype) {
      case DType::f32: return f32;
      case DType::f64: return f64;
      case DType::i32: return i32;
      case DType::u32: return u32;
      case DType::f16:
      case DType::bf16:
      case DType::u16: return u16;
      case DType::i16: return i16;
      case DType::i64: return i64;
      case DType::u64: return u64;
      case DType::i8: return i8;
      default: return is_packed(dtype) || is_block(dtype) ? "" : u8;
    }
  }
};

class CppWriter : public CodeWriter {
 public:
  using CodeWriter::CodeWriter;

 protected:
  static constexpr NumberNames kNames{"std::int8_t",   "std::uint8_t", "std::int16_t",  "std::uint16_t", "std::int32_t",
                                      "std::uint32_t", "std::int64_t", "std::uint64_t", "float",         "double"};
  std::string begin() const override { return "#include <cstddef>\n#include <cstdint>\n\n#pragma pack(push, 1)\n"; }
  std::string end() const override { return "#pragma pack(pop)\n"; }
  std::string number(Kind kind, const std::string&) const override { return kNames.of(kind); }
  std::string bytes_type() const override { return kNames.u8; }
  Piece element(DType dtype, const Shape& shape, std::uint64_t bytes, const std::string&) override {
    const std::string type = kNames.of(dtype);
    return type.empty() ? Piece{kNames.u8, bytes} : Piece{type, static_cast<std::uint64_t>(shape.numel())};
  }
  static std::string declared(const Field& field, const std::string& name) {
    return fmt::format("  {} {}{};\n", field.piece.type, name,
                       field.piece.count ? fmt::format("[{}]", *field.piece.count) : "");
  }
  void put_struct(const std::string& type, const std::vector<Field>& fields, std::uint64_t size) override {
    out_ += fmt::format("struct {} {{\n", type);
    for (const Field& field : fields)
      out_ += declared(field, field.name.empty() ? fmt::format("padding_{}", field.offset) : field.name);
    out_ += fmt::format("}};\nstatic_assert(sizeof({}) == {});\n", type, size);
    for (const Field& field : fields)
      if (!field.name.empty())
        out_ += fmt::format("static_assert(offsetof({}, {}) == {});\n", type, field.name, field.offset);
  }
  void put_union(const std::string& type, const std::vector<Field>& fields) override {
    out_ += fmt::format("union {} {{\n", type);
    for (const Field& field : fields) out_ += declared(field, field.name);
    out_ += "};\n";
  }
  void put_enum(const std::string& type, const std::vector<std::string>& words) override {
    out_ += fmt::format("enum class {} : std::uint32_t {{", type);
    for (std::size_t i = 0; i < words.size(); ++i)
      out_ += fmt::format("{}{} = {}", i ? ", " : " ", identifier(words[i]), i);
    out_ += " };\n";
  }
};

class RustWriter : public CodeWriter {
 public:
  using CodeWriter::CodeWriter;

 protected:
  static constexpr NumberNames kNames{"i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"};
  std::string begin() const override { return "#![allow(non_camel_case_types, non_upper_case_globals)]\n"; }
  std::string number(Kind kind, const std::string&) const override { return kNames.of(kind); }
  std::string bytes_type() const override { return "u8"; }
  Piece element(DType dtype, const Shape& shape, std::uint64_t bytes, const std::string&) override {
    const std::string type = kNames.of(dtype);
    return type.empty() ? Piece{"u8", bytes} : Piece{type, static_cast<std::uint64_t>(shape.numel())};
  }
  static std::string declared(const Field& field, const std::string& name) {
    return fmt::format(
        "    pub {}: {},\n", name,
        field.piece.count ? fmt::format("[{}; {}]", field.piece.type, *field.piece.count) : field.piece.type);
  }
  void put_struct(const std::string& type, const std::vector<Field>& fields, std::uint64_t size) override {
    out_ += fmt::format("#[repr(C, packed)]\n#[derive(Clone, Copy)]\npub struct {} {{\n", type);
    for (const Field& field : fields)
      out_ += declared(field, field.name.empty() ? fmt::format("padding_{}", field.offset) : field.name);
    out_ += fmt::format("}}\nconst _: () = assert!(core::mem::size_of::<{}>() == {});\n", type, size);
  }
  void put_union(const std::string& type, const std::vector<Field>& fields) override {
    out_ += fmt::format("#[repr(C, packed)]\n#[derive(Clone, Copy)]\npub union {} {{\n", type);
    for (const Field& field : fields) out_ += declared(field, field.name);
    out_ += "}\n";
  }
  // Not an enum of Rust: files may have any number, which an enum must not.
  void put_enum(const std::string& type, const std::vector<std::string>& words) override {
    out_ += fmt::format("pub type {} = u32;\n", type);
    for (std::size_t i = 0; i < words.size(); ++i)
      out_ += fmt::format("pub const {}_{}: {} = {};\n", type, identifier(words[i]), type, i);
  }
};

/// Structs of storage buffers. All members are words of 4 bytes, and @size places the next one.
class WgslWriter : public CodeWriter {
 public:
  using CodeWriter::CodeWriter;

 protected:
  std::string begin() const override { return ""; }
  std::string number(Kind kind, const std::string& path) const override {
    switch (kind) {
      case Kind::int32: return "i32";
      case Kind::uint32: return "u32";
      case Kind::float32: return "f32";
      case Kind::int64:
      case Kind::uint64:
      case Kind::float64: return "array<u32, 2>";
      default:
        refuse_code(path, "WGSL has no numbers of fewer than 4 bytes in structs; make it a Tensor of 4 bytes or more");
    }
  }
  std::string bytes_type() const override { return "bytes"; }
  Piece element(DType dtype, const Shape& shape, std::uint64_t bytes, const std::string& path) override {
    if (bytes % 4 != 0) refuse_code(path, "its bytes do not fill words of 4");
    const bool is_word = dtype == DType::f32 || dtype == DType::i32 || dtype == DType::u32;
    return is_word ? Piece{std::string(name_of(dtype)), static_cast<std::uint64_t>(shape.numel())}
                   : Piece{"u32", bytes / 4};
  }
  void put_struct(const std::string& type, const std::vector<Field>& fields, std::uint64_t size) override {
    out_ += fmt::format("struct {} {{\n", type);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      const Field& field = fields[i];
      if (field.name.empty()) {
        if (i == 0) refuse_code(type, "a struct of WGSL cannot begin with padding");
        continue;
      }
      if (field.offset % 4 != 0 || field.size % 4 != 0)
        refuse_code(type, fmt::format("{} does not fill words of 4 bytes", field.name));
      const bool is_last = i + 1 == fields.size() || !fields[i + 1].name.empty();
      const std::uint64_t end = is_last ? field.offset + field.size : fields[i + 1].offset + fields[i + 1].size;
      Piece piece = field.piece;
      if (piece.type == bytes_type()) piece = {"u32", *piece.count / 4};  // data of a string
      const std::string shown = piece.count ? fmt::format("array<{}, {}>", piece.type, *piece.count) : piece.type;
      out_ += fmt::format("  {}{}: {},\n",
                          end > field.offset + field.size ? fmt::format("@size({}) ", end - field.offset) : "",
                          field.name, shown);
    }
    out_ += fmt::format("}}  // {} bytes\n", size);
    if (size % 4 != 0) refuse_code(type, "its size is not a multiple of 4");
  }
  void put_union(const std::string& type, const std::vector<Field>&) override {
    refuse_code(type, "WGSL has no unions");
  }
  void put_enum(const std::string& type, const std::vector<std::string>& words) override {
    out_ += fmt::format("alias {} = u32;\n", type);
    for (std::size_t i = 0; i < words.size(); ++i)
      out_ += fmt::format("const {}_{}: u32 = {}u;\n", type, identifier(words[i]), i);
  }
};

// ---- TypeScript: the types of values, and the places of their bytes -----------------------------------------------------------

std::string value_type(const Node& node, int& pieces) {
  if (++pieces > kPiecesMax) refuse_code("", "there are too many parts to declare");
  switch (node.kind) {
    case Kind::boolean: return "boolean";
    case Kind::string:
    case Kind::timestamp: return "string";
    case Kind::bytes:
    case Kind::tensor: return "Tensor";
    case Kind::float16:
    case Kind::bfloat16:
    case Kind::float32:
    case Kind::float64: return "number | \"nan\" | \"inf\" | \"-inf\"";
    case Kind::enumeration: {
      std::string text;
      for (const std::string& word : node.words) text += (text.empty() ? "" : " | ") + Value(word).to_json();
      return text;
    }
    case Kind::array: return fmt::format("({})[]", value_type(*node.element, pieces));
    case Kind::record: return fmt::format("Record<string, {}>", value_type(*node.element, pieces));
    case Kind::structure: {
      std::string text = "{";
      for (const Member& member : node.members)
        text += fmt::format(" {}: {};", Value(member.name).to_json(), value_type(*member.node, pieces));
      return text + " }";
    }
    case Kind::union_of: {
      std::string text;
      for (const Member& member : node.members)
        text += fmt::format(
            "{}{}", text.empty() ? "" : " | ",
            node.tag_field.empty()
                ? fmt::format("{{ __discriminator: {}; value: {} }}", member.number, value_type(*member.node, pieces))
                : fmt::format("({{ {}: {} }} & {})", Value(node.tag_field).to_json(), Value(member.name).to_json(),
                              value_type(*member.node, pieces)));
      return text;
    }
    default: return "number";
  }
}

}  // namespace

std::string declarations(const Layout& layout, Language language, std::string_view name) {
  const detail::Compiled& compiled = *layout.compiled_;
  switch (language) {
    case Language::cpp: return CppWriter(compiled).run(name);
    case Language::rust: return RustWriter(compiled).run(name);
    case Language::wgsl: return WgslWriter(compiled).run(name);
    case Language::typescript: break;
  }
  int pieces = 0;
  std::string text = fmt::format("import type {{ Tensor }} from \"weft\";\n\nexport type {} = {};\n", identifier(name),
                                 value_type(*compiled.root, pieces));
  if (!layout.size_bytes()) return text;
  text += fmt::format("/** Where the parts are: [begin, end) in {} bytes. */\nexport const {}_places = {{\n",
                      *layout.size_bytes(), identifier(name));
  for (const auto& [path, range] : layout.ranges())
    text += fmt::format("  {}: [{}, {}],\n", Value(path).to_json(), range.begin, range.end);
  return text + "} as const;\n";
}

}  // namespace weft::typedefs
