// Writes weft/elementwise.hpp, one documented function for each row of the op table; weft/in_place.hpp, the same functions by
// the names that end in an underscore; and a table of all ops in Markdown.
// Run by the build: generate_elementwise HEADER IN_PLACE MARKDOWN
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "ops/derivative.hpp"
#include "ops/rows.hpp"

namespace {

using namespace weft::ops;

std::string words_of(DTypes set) {
  switch (set) {
    case DTypes::floats: return "f32, f64";
    case DTypes::numbers: return "f32, f64, i32, u32";
    case DTypes::integers: return "i32, u32";
    case DTypes::bits: return "i32, u32, bool";
    case DTypes::all: return "all";
  }
  return "";
}

std::string words_of(Result result) {
  switch (result) {
    case Result::same: return "the inputs' promoted dtype";
    case Result::floating: return "the inputs' promoted dtype if a float, else f32";
    case Result::boolean: return "bool";
    case Result::integer: return "i32";
  }
  return "";
}

/// Words that C++ keeps for itself.
std::string cpp_name(std::string_view name) {
  constexpr std::string_view taken[] = {
      "and",      "and_eq", "asm",      "auto",   "bitand",   "bitor",  "bool",    "break",   "case",
      "catch",    "char",   "class",    "compl",  "const",    "delete", "default", "do",      "double",
      "else",     "enum",   "export",   "extern", "false",    "float",  "for",     "friend",  "goto",
      "if",       "inline", "int",      "long",   "mutable",  "new",    "not",     "not_eq",  "operator",
      "or",       "or_eq",  "private",  "public", "return",   "short",  "signed",  "sizeof",  "static",
      "struct",   "switch", "template", "this",   "throw",    "true",   "try",     "typedef", "union",
      "unsigned", "using",  "virtual",  "void",   "volatile", "while",  "xor",     "xor_eq"};
  std::string out(name);
  if (std::find(std::begin(taken), std::end(taken), name) != std::end(taken)) out += '_';
  return out;
}

std::string number(double value) {
  if (std::isinf(value)) return value > 0 ? "kInfinity" : "-kInfinity";
  return fmt::format("{}", value);
}

std::string shown(double value) { return std::isinf(value) ? (value > 0 ? "inf" : "-inf") : fmt::format("{}", value); }

/// A text on one line.
std::string one_line(std::string_view text) {
  std::string out;
  for (char c : text)
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  return out;
}

std::string formula(const ElementwiseRow& row) { return one_line(row.forward); }

/// As the row gives it, else as it was derived.
std::string gradient_text(const ElementwiseRow& row, std::size_t input) {
  if (input < row.gradients.size() && !row.gradients[input].empty()) return one_line(row.gradients[input]);
  std::vector<std::string> names;
  for (std::string_view name : row.inputs) names.emplace_back(name);
  for (const Attribute& attribute : row.attributes) names.emplace_back(attribute.name);
  names.insert(names.end(), {"output", "g"});
  // That of an approximation is its coefficients, over pages.
  constexpr std::size_t kCharactersMax = 1000;
  const std::string text = weft::scalar::to_text(gradients(row)[input], names);
  return text.size() <= kCharactersMax ? text : "derived from the formula";
}

/// Functions of a row: all inputs tensors, or with one of them a number.
class Header {
 public:
  explicit Header(const ElementwiseRow& row) : row_(row) {}

  std::string run() {
    const std::string name(row_.name);
    out_ += fmt::format("/// {}\n///\n/// Formula   {}\n", std::string_view(row_.doc), formula(row_));
    for (const Attribute& attribute : row_.attributes)
      out_ += fmt::format("/// Attribute {}: {} (default {})\n", attribute.name, attribute.doc,
                          shown(attribute.default_value));
    out_ += fmt::format("/// Dtypes    {} -> {}\n", words_of(row_.dtypes), words_of(row_.result));
    for (std::size_t i = 0; row_.differentiable && i < row_.inputs.size(); ++i)
      out_ += fmt::format("/// Gradient  d{} = {}\n", row_.inputs[i], gradient_text(row_, i));
    if (row_.max_ulp > 0 && row_.ulp_floor == 0)
      out_ += fmt::format("/// Accuracy  within {} ulp of f64 for inputs in the tested range, [{}, {}]\n",
                          row_.max_ulp.value, row_.tested[0].lo, row_.tested[0].hi);
    function(name, -1);
    if (row_.inputs.size() == 2) number_versions(name, {1, 0});
    if (row_.inputs.size() == 3 && row_.attributes.empty()) number_versions(name, {2, 1});
    for (std::string_view alias : row_.aliases) {
      out_ += fmt::format("/// Another name of {}.\n", name);
      function(std::string(alias), -1);
      if (row_.inputs.size() == 2) number_versions(std::string(alias), {1, 0});
    }
    return out_ + "\n";
  }

 private:
  void number_versions(const std::string& name, std::initializer_list<int> positions) {
    for (int position : positions) function(name, position);
  }

  /// The function with input `number_at` a number (-1: none).
  void function(const std::string& name, int number_at) {
    std::string parameters, inputs, attributes;
    int like = -1;
    for (std::size_t i = 0; i < row_.inputs.size(); ++i)
      if (static_cast<int>(i) != number_at) like = static_cast<int>(i);
    for (std::size_t i = 0; i < row_.inputs.size(); ++i) {
      const std::string input = cpp_name(row_.inputs[i]);
      const bool is_number = static_cast<int>(i) == number_at;
      parameters += is_number ? fmt::format("double {}, ", input) : fmt::format("const Tensor& {}, ", input);
      inputs += i == 0 ? "" : ", ";
      inputs += is_number
                    ? fmt::format("scalar_like({}, {})", input, cpp_name(row_.inputs[static_cast<std::size_t>(like)]))
                    : input;
    }
    for (const Attribute& attribute : row_.attributes) {
      parameters += fmt::format("double {} = {}, ", cpp_name(attribute.name), number(attribute.default_value));
      attributes += fmt::format("{}{}", attributes.empty() ? "" : ", ", cpp_name(attribute.name));
    }
    out_ += fmt::format(
        "[[nodiscard]] inline Tensor {}({}Where where_ = Where::current()) {{\n"
        "  return elementwise(\"{}\", {{{}}}, {{{}}}, where_);\n}}\n",
        cpp_name(name), parameters, std::string_view(row_.name), inputs, attributes);
  }

  const ElementwiseRow& row_;
  std::string out_;
};

std::string header() {
  std::string out =
      "// Elementwise ops: one function for each row of the op table. Generated by the build; the rows stand in "
      "src/ops/.\n"
      "// Inputs broadcast. Errors of every one: ShapeError where shapes do not broadcast, DTypeError for a dtype that "
      "is\n"
      "// not taken, DeviceError for operands on different devices. A number beside tensors takes their dtype.\n"
      "#pragma once\n\n#include <limits>\n\n#include \"weft/tensor.hpp\"\n\nnamespace weft {\n\n"
      "inline constexpr double kInfinity = std::numeric_limits<double>::infinity();\n\n";
  for (const ElementwiseRow* row : elementwise_rows()) out += Header(*row).run();
  return out + "}  // namespace weft\n";
}

/// relu_(x) and its kind: x becomes the result. The first input may be a Tensor, whose handle gets another value, or a Variable,
/// which is assigned.
std::string in_place_header() {
  std::string out =
      "// Elementwise ops by PyTorch's names in place: relu_(x) is x = relu(x). A Tensor's handle gets another value, "
      "and other\n"
      "// handles keep theirs; a Variable is assigned. Generated by the build from the rows in src/ops/. Errors: as "
      "the op;\n"
      "// ShapeError or DTypeError if the result differs from x in shape or dtype.\n"
      "#pragma once\n\n#include <type_traits>\n\n#include \"weft/elementwise.hpp\"\n#include "
      "\"weft/tensor.hpp\"\n\nnamespace weft {\n\n"
      "template <class X>\nconcept InPlace = std::is_same_v<X, Tensor> || std::is_same_v<X, Variable>;\n\n"
      "namespace detail {\n"
      "void assign_in_place(Tensor& x, Tensor result, const char* name, Where where);\n"
      "void assign_in_place(Variable& x, Tensor result, const char* name, Where where);\n"
      "/// y broadcast to the shape of x and cast to its dtype.\n"
      "Tensor copied_to(const Tensor& x, const Tensor& y, Where where);\n"
      "}  // namespace detail\n\n"
      "/// x becomes `value` everywhere.\n"
      "template <InPlace X>\nX& fill_(X& x, double value, Where where_ = Where::current()) {\n"
      "  const Tensor of = x;\n"
      "  detail::assign_in_place(x, full(of.shape(), value, of.dtype(), of.device()), \"fill_\", where_);\n"
      "  return x;\n}\n"
      "template <InPlace X>\nX& zero_(X& x, Where where_ = Where::current()) {\n  return fill_(x, 0, where_);\n}\n"
      "/// x becomes y, broadcast to its shape and cast to its dtype.\n"
      "template <InPlace X>\nX& copy_(X& x, const Tensor& y, Where where_ = Where::current()) {\n"
      "  detail::assign_in_place(x, detail::copied_to(x, y, where_), \"copy_\", where_);\n  return x;\n}\n\n";
  for (const ElementwiseRow* row : elementwise_rows()) {
    if (row->result == Result::boolean || row->name == "where") continue;
    std::vector<std::string_view> names{row->name};
    names.insert(names.end(), row->aliases.begin(), row->aliases.end());
    for (std::string_view name : names)
      for (const bool by_number : {false, true}) {
        if (by_number && row->inputs.size() != 2) continue;
        std::string parameters, rest;
        for (std::size_t i = 1; i < row->inputs.size(); ++i) {
          parameters += fmt::format("{} {}, ", by_number ? "double" : "const Tensor&", cpp_name(row->inputs[i]));
          rest += fmt::format("{}, ", cpp_name(row->inputs[i]));
        }
        for (const Attribute& attribute : row->attributes) {
          parameters += fmt::format("double {} = {}, ", cpp_name(attribute.name), number(attribute.default_value));
          rest += fmt::format("{}, ", cpp_name(attribute.name));
        }
        out += fmt::format(
            "template <InPlace X>\nX& {0}_(X& {1}, {2}Where where_ = Where::current()) {{\n"
            "  detail::assign_in_place({1}, {3}({1}, {4}where_), \"{0}_\", where_);\n  return {1};\n}}\n",
            name, cpp_name(row->inputs[0]), parameters, cpp_name(name), rest);
      }
  }
  return out + "\n}  // namespace weft\n";
}

/// Text for a cell: the bar would end it.
std::string cell(std::string_view text) {
  std::string out;
  for (char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}
std::string code(std::string_view text) { return fmt::format("`{}`", cell(text)); }

template <class Row>
std::string titled(const Row& row) {
  std::string out = code(row.name);
  for (std::string_view alias : row.aliases) out += fmt::format(" {}", code(alias));
  return out;
}

template <class Row>
std::string attributes_of(const Row& row) {
  std::string out;
  for (const Attribute& attribute : row.attributes)
    out += fmt::format("{}{} = {}", out.empty() ? "" : ", ", code(attribute.name), shown(attribute.default_value));
  return out;
}

std::string markdown() {
  struct Family {
    const char* title;
    std::span<const ElementwiseRow> rows;
  };
  const Family families[] = {{"Functions of one value", unary_rows()},
                             {"Activations", activation_rows()},
                             {"Functions of two values", binary_rows()},
                             {"Functions of three values", ternary_rows()},
                             {"Special functions", special_rows()}};
  std::string out = "# The op table\n\nGenerated by the build from the rows in `src/ops/`.\n";
  for (const Family& family : families) {
    out += fmt::format(
        "\n## {}\n\n| op | inputs | attributes | dtypes | meaning | formula | gradient "
        "|\n|---|---|---|---|---|---|---|\n",
        family.title);
    for (const ElementwiseRow& row : family.rows) {
      std::string gradient;
      for (std::size_t i = 0; row.differentiable && i < row.inputs.size(); ++i)
        gradient += fmt::format("{}d{} = {}", i == 0 ? "" : "; ", row.inputs[i], code(gradient_text(row, i)));
      out += fmt::format("| {} | {} | {} | {} | {} | {} | {} |\n", titled(row), fmt::join(row.inputs, ", "),
                         attributes_of(row), words_of(row.dtypes), cell(row.doc), code(formula(row)),
                         gradient.empty() ? "none" : gradient);
    }
  }
  out +=
      "\n## Reductions\n\n| op | attributes | dtypes | meaning | of each element | combined | then "
      "|\n|---|---|---|---|---|---|---|\n";
  for (const ReduceRow& row : reduce_rows())
    out +=
        fmt::format("| {} | {} | {} | {} | {}{} | {} | {} |\n", titled(row), attributes_of(row), words_of(row.dtypes),
                    cell(row.doc), code(row.pre), row.center.empty() ? "" : fmt::format(", c = {}", row.center),
                    weft::scalar::name_of(row.reduction), code(row.post));
  return out;
}

bool write(const char* path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) std::cerr << "generate_elementwise: cannot write " << path << "\n";
  return static_cast<bool>(file);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::cerr << "usage: generate_elementwise HEADER IN_PLACE MARKDOWN\n";
    return 2;
  }
  try {
    return write(arguments[1], header()) && write(arguments[2], in_place_header()) && write(arguments[3], markdown())
               ? 0
               : 1;
  } catch (const std::exception& error) {
    std::cerr << "generate_elementwise: " << error.what() << "\n";
    return 1;
  }
}
