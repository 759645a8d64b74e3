// Descriptions by the name of a builder and options as data.
#include <fmt/format.h>

#include <initializer_list>

#include "base/quote.hpp"
#include "schema/value_options.hpp"
#include "weft/grid/builders.hpp"

namespace weft::grid {
namespace {

// So that products of a few extents fit 64 bits.
constexpr Extent kBuilderExtentMax = Extent{1} << 20;

void check_extents(std::string_view kind, std::initializer_list<Extent> extents) {
  for (const Extent each : extents)
    if (each < 0 || each > kBuilderExtentMax)
      throw UsageError(fmt::format("grid {}: an extent is {}; 0 to {} are possible", kind, each, kBuilderExtentMax));
}

}  // namespace

Description build(std::string_view kind, const Value& options) {
  ValueOptions given(options, fmt::format("grid {}", kind));
  if (kind == "mlp") {
    std::vector<Extent> widths;
    std::string act = "relu";
    given.read("widths", widths).read("activation", act).finish();
    return mlp(widths, activation(act));
  }
  if (kind == "cnn") {
    CnnOptions o;
    given.read("channels", o.channels).read("height", o.height).read("width", o.width);
    given.read("filters", o.filters).read("classes", o.classes).finish();
    check_extents(kind, {o.channels, o.height, o.width, o.classes});
    for (const Extent each : o.filters) check_extents(kind, {each});
    return cnn(o);
  }
  if (kind == "transformer") {
    TransformerOptions o;
    given.read("vocabulary", o.vocabulary).read("width", o.width).read("hidden", o.hidden).read("heads", o.heads);
    given.read("key_heads", o.key_heads).read("blocks", o.blocks).read("rope_base", o.rope_base).finish();
    check_extents(kind, {o.vocabulary, o.width, o.hidden, o.heads, o.key_heads, o.blocks});
    return transformer(o);
  }
  if (kind == "random") {
    RandomOptions o;
    given.read("depth", o.depth).read("rows", o.rows).read("columns", o.columns);
    given.read("layers_per_cell", o.layers_per_cell).read("width", o.width).read("seed", o.seed).finish();
    check_extents(kind, {o.depth, o.rows, o.columns, o.layers_per_cell, o.width});
    return random(o);
  }
  throw UsageError(fmt::format("grid: there is no builder {}; known are mlp, cnn, transformer, random", quote(kind)));
}

}  // namespace weft::grid
